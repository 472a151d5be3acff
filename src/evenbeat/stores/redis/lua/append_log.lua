-- Stores chunks of runs' logs. A chunk that exists is not changed. request: rows of {run, field, text}.
-- Only for runs that exist: no purge would delete the log of another.

for _, row in ipairs(request) do
  local log = base .. 'logs:' .. row[1]
  if call('EXISTS', base .. 'runs:' .. row[1]) == 1 and fits(log, 'hash') then call('HSETNX', log, row[2], row[3]) end
end
return { now }
