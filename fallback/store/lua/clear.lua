-- ARGV: 1, the partition, residue.
local p = take_partitions()[1]
local state = loaded[p]
take_residue(function(key, holder, token)
  local i = find(state, key)
  if i and state.residue[i + 1] == holder and state.residue[i + 2] == token then
    for _ = 1, 3 do
      table.remove(state.residue, i)
    end
    touch(p)
  end
end)
save()
return {'ok'}
