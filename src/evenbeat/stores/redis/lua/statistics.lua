-- Reads the statistics of schedules. request: paths. Returns a row for each.

local rows = {}
for at, path in ipairs(request) do
  local found = read('HMGET', base .. 'schedules:' .. path, 'run_count', 'success_count', 'failure_count', 'last_run',
    'last_success', 'last_failure', 'last_error')
  rows[at] = #found > 0 and found or { false, false, false, false, false, false, false }
end
return { now, rows }
