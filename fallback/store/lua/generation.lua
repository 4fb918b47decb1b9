if differs() then
  return {'settings', settings}
end
return {'ok', generation, identity}
