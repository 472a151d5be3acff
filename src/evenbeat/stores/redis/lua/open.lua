-- Returns the version of the layout, and writes it if there is none. request: {the version that this Evenbeat uses}.

local found = call('HGET', KEYS[1], 'schema')
if not found then
  call('HSET', KEYS[1], 'schema', request[1])
  found = tostring(request[1])
end
return { now, found }
