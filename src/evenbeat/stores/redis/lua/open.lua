-- Returns the version of the layout, and writes it if there is none. asked: {the version that this Evenbeat uses}.

local found = call('HGET', KEYS[1], 'schema')
if not found then
  call('HSET', KEYS[1], 'schema', asked[1])
  found = tostring(asked[1])
end
return { now, found }
