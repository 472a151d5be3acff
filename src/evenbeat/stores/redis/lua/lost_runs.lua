-- Finds running runs whose lease has ended. request: {ended by, limit}.
-- Returns {the earliest end of any other lease, or false; rows}.

local ended = math.min(now, request[1])
local some = call('ZRANGEBYSCORE', base .. 'leases', '-inf', ended, 'LIMIT', 0, request[2])
local rows = {}
for _, id in ipairs(some) do
  local fields = read('HGETALL', base .. 'runs:' .. id)
  -- A run that does not exist, or a key of another type, counts as unreadable.
  rows[#rows + 1] = #fields > 0 and fields or { 'id', id }
end
local following = call('ZRANGE', base .. 'leases', #some, #some, 'WITHSCORES')
return { now, tonumber(following[2]) or false, rows }
