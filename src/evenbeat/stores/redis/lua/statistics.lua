-- What became of the runs of schedules. asked: paths. Answers a row for each.

local rows = {}
for at, path in ipairs(asked) do
  rows[at] = call('HMGET', base .. 'schedules:' .. path, 'run_count', 'success_count', 'failure_count', 'last_run',
    'last_success', 'last_failure', 'last_error')
end
return { now, rows }
