-- ARGV: partition, then key, holder, token of each residue.
local p = take()
local state = load(p)
while argument < #ARGV do
  local key, holder, token = take(), take(), take()
  local i = find(state, key)
  if i and state.residue[i + 1] == holder and state.residue[i + 2] == token then
    for _ = 1, 3 do
      table.remove(state.residue, i)
    end
    touch(p)
  end
end
save()
return {'ok'}
