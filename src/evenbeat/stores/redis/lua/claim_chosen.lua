-- Claims runs that were chosen from the reply of limited_runs.lua, unless the limits were changed or other limited runs were
-- claimed since: then the choice may exceed a limit.
-- request: {worker, token, lease, version of the limits, mark of the last claim, chosen, buckets, queues, tasks or false,
-- families, bytes, the time of the decision}. chosen: rows of {id, family, ready, cohort or false}; buckets: records to be written.
-- Returns one of:
--   'stale': nothing was claimed.
--   'fewer', number: nothing was claimed; only so many of the first runs fit into one reply.
--   'taken', rows of {attempt, fields}, lease_until, started_at, next due without a cohort or false.

begin()
need_for_runs()
need('hash', 'held:' .. request.worker, 'limits', 'slots')
local known = call('HMGET', base .. 'limits', 'version', 'checked', 'claimed')
if (known[1] or 'none') ~= request.version or known[2] ~= request.version then return { now, 'stale' } end

local runs, size, is_limited, is_stale = {}, 0, false, false
for at, row in ipairs(request.chosen) do
  local run, cohort = read_to_claim(row[1]), row[4] or nil
  runs[at] = run
  if cohort then is_limited = true end
  local line = line_of(row[2], row[3], cohort)
  if run.state ~= 'queued' or run.cohort ~= cohort then
    wait_in(row[2], row[3], cohort, row[1], false)
    run.gone = true
  elseif (tonumber(fits(line, 'zset') and call('ZSCORE', line, row[1]) or nil) or now + 1) > now then
    run.gone = true -- claimed meanwhile, and queued again for later
  end
  -- The buckets count a limited run that is gone: the caller chooses again.
  if run.gone and cohort then is_stale = true end
  size = size + run.size
  if size > request.bytes and at > 1 then
    flush()
    return { now, 'fewer', at - 1 }
  end
end
if is_limited and (known[3] or 'none') ~= request.claimed then is_stale = true end
if is_stale or not can_add_records(request.buckets) then
  flush()
  return { now, 'stale' }
end

-- The buckets are filled by the time of the decision. By a later one, two starts could seem closer than a rate allows.
local until_, started, rows = now + request.lease, math.min(now, request.decided), {}
for at, row in ipairs(request.chosen) do
  if not runs[at].gone then
    wait_in(row[2], row[3], row[4] or nil, row[1], false)
    rows[#rows + 1] = start_run(row[1], runs[at], request.worker, request.token, until_, started)
  end
end
for _, bucket in ipairs(request.buckets) do write_record(record_key(bucket[1], bucket[2], bucket[3]), bucket) end
if is_limited then mark('claimed') end
flush()
return { now, 'taken', rows, until_, started, next_waiting(request.families, request.queues, set_of(request.tasks)) }
