-- Stores chunks of runs' logs. A chunk that exists is not changed. request: rows of {run, field, text, created_at of the
-- run or false}. Only for runs that exist: no purge would delete the log of another. With created_at: not for a later
-- run of that id.

local function is_there(id, created_at)
  local key = base .. 'runs:' .. id
  if created_at then return read('HMGET', key, 'created_at')[1] == created_at end
  return call('EXISTS', key) == 1
end

for _, row in ipairs(request) do
  local log = base .. 'logs:' .. row[1]
  if is_there(row[1], row[4]) and fits(log, 'hash') then call('HSETNX', log, row[2], row[3]) end
end
return { now }
