-- The version of what is there; written where there is nothing yet. asked: {version that is known}.

local found = call('HGET', KEYS[1], 'schema')
if not found then
  call('HSET', KEYS[1], 'schema', asked[1])
  found = tostring(asked[1])
end
return { now, found }
