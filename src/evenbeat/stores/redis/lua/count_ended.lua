-- Counts the runs that ended at an instant or later, in the indexes of tenants and states.
-- request: {instant, rows of {tenant, state}}. Returns the number; about 1 us for each row.

local since, number = string.format('%.0f', request[1]), 0
for _, row in ipairs(request[2]) do
  local key = ended_key(row[1], row[2])
  if fits(key, 'zset') then number = number + call('ZCOUNT', key, since, '+inf') end
end
return { now, number }
