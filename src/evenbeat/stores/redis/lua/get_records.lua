-- Reads the bodies of records. request: {kind, tenant, keys}. Returns for each its body, or false if there is none.

local bodies = {}
for at, name in ipairs(request[3]) do
  local found = read('HMGET', record_key(request[1], request[2], name), 'version', 'body', 'expires')
  bodies[at] = is_live(found[1], found[3]) and found[2] or false
end
return { now, bodies }
