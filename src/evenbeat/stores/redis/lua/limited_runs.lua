-- Reads what a claim decides on while limits exist. The decision is made in Python; claim_chosen.lua writes it.
-- request: {worker, token, room, now, queues, tasks or false, families, turn, goes_on, version, concerned, keyed, given, checked,
-- most, misfits, bytes}. version: of the limits that the caller knows; concerned: {any, tasks, tenants, queues}, the runs that
-- these limits may concern; keyed: whether cohorts depend on payloads; given: rows of {id, state, cohort or false, and of a queued
-- run family, present and new "queue:priority:tenant:task"} to be written first; checked: the mark that the caller has read, if all
-- running runs have their cohorts as of then, or false; most: how many runs to return that need another cohort;
-- misfits: rows of {family, cohort} whose runs do; bytes: about how much of payloads to return.
--
-- Returns one of:
--   'none': there are no limits, and no queued runs with a cohort.
--   'held', rows: the claim was made before.
--   'limits', version, is_checked, bodies, mark: the caller has to read the limits, or to give cohorts to running runs.
--   'give', rows of {id, family, ready, queue, priority, tenant, task, definition, payload}: queued runs that need a cohort, another one or none.
--   'runs', now, due, mark of the last claim, running as {cohort, number, …}, due runs without a cohort as rows of {id, tenant,
--     priority, run_at, family, ready}, due cohorts as rows of {family, {cohort, run_at of its first run, …}}, run_at of the
--     first cohort that is not due or false, next due without a cohort or false.
--
-- CPU time of the server on a quiet machine with 2 cores: with 1,000 due cohorts, the three scripts of a claim of 10 runs take 7 ms
-- together; with a rate for each cohort, the five scripts take 11 ms. While 50,000 runs of one limit get their cohorts, 100
-- in a script, a script takes some 3 ms; some 7 ms if each run begins a cohort of its own. Both are averages over a claim.

begin()
need_for_runs()
need('hash', 'held:' .. request.worker, 'limits', 'slots')
need('zset', 'kinds:limit')
local due, tasks, families, names = math.min(now, request.now), set_of(request.tasks), request.families, request.queues

if not request.goes_on then
  local rows = held_by(request.worker, request.token)
  if #rows > 0 then return { now, 'held', rows } end
end
if call('EXISTS', base .. 'kinds:limit', base .. 'limited') == 0 then return { now, 'none' } end

local known = call('HMGET', base .. 'limits', 'version', 'checked', 'claimed', 'unchecked')
local version = known[1] or 'none'
local function limits()
  local bodies = {}
  for _, member in ipairs(call('ZRANGEBYLEX', base .. 'kinds:limit', '[default ', '(default!')) do
    local found = read('HMGET', record_key('limit', 'default', sub(member, 9)), 'version', 'body', 'expires')
    if is_live(found[1], found[3]) then bodies[#bodies + 1] = found[2] or '' end
  end
  return { now, 'limits', version, known[2] == version and 1 or 0, bodies, known[4] or 'none' }
end
if version ~= request.version then return limits() end

-- Gives cohorts. A run that has changed since is left alone.
for _, row in ipairs(request.given) do
  local id, cohort, family, ready = row[1], row[3], row[4], row[5]
  local key = base .. 'runs:' .. id
  local found = read('HMGET', key, 'state', 'cohort', 'tenant', 'task')
  local last = found[2]
  -- A cohort names a task.
  local is_moved = row[6] and (found[4] or '') ~= match(row[6], '^[^:]*:[^:]*:[^:]*:(.*)$')
  if found[1] == row[2] and last ~= cohort and not is_moved then
    local is_queued = found[1] == 'queued'
    if is_queued and not can_wait(family, row[6], cohort) then
      -- It is tried again in a minute, until that key is repaired.
      note(found[3] or 'default', id, wrong)
      wait_in(family, ready, last, id, now + 60000)
    else
      if cohort then call('HSET', key, 'cohort', cohort) else call('HDEL', key, 'cohort') end
      if is_queued then
        local line = line_of(family, ready, last)
        local run_at = fits(line, 'zset') and call('ZSCORE', line, id) or instant(call('HGET', key, 'run_at'))
        wait_in(family, ready, last, id, false)
        wait_in(family, row[6], cohort, id, run_at or 0)
      else
        slots[id] = cohort
      end
    end
  end
end
if request.checked and request.checked == (known[4] or 'none') then
  call('HSET', base .. 'limits', 'checked', version)
  known[2] = version
end
if #request.given > 0 then
  flush()
  sorted, held, slots, lines, counts = {}, {}, {}, {}, {}
end
if known[2] ~= version then return limits() end

-- The indexes of due runs, those that a limit may concern apart.
local of_tasks, of_tenants, of_queues = set_of(request.concerned[2]), set_of(request.concerned[3]), set_of(request.concerned[4])
local open, limited = {}, {}
for _, line in ipairs(due_lines(families, names, tasks, due)) do
  local is_concerned = request.concerned[1] or of_tasks[line[6]] or of_tenants[line[5]] or of_queues[line[7]]
  table.insert(is_concerned and limited or open, line)
end

-- Runs that need another cohort.
if request.most > 0 and (#limited > 0 or #request.misfits > 0) then
  local rows, left, size = {}, request.most, 0
  local wanted = { 'state', 'cohort', 'queue', 'priority', 'tenant', 'task', 'definition', request.keyed and 'payload' or nil }
  local function collect(family, ready, cohort)
    if left <= 0 then return end
    local key = line_of(family, ready, cohort)
    local ids = read('ZRANGEBYSCORE', key, '-inf', due, 'LIMIT', 0, left)
    if #ids == 0 then recheck(family, ready, cohort) end
    for _, id in ipairs(ids) do
      local found = read('HMGET', base .. 'runs:' .. id, unpack(wanted))
      if found[1] ~= 'queued' or (found[2] or nil) ~= cohort then
        -- A run that does not exist, or waits elsewhere, does not belong here.
        wait_in(family, ready, cohort, id, false)
      else
        local payload = found[8] or 'null'
        rows[#rows + 1] = { id, family, ready, found[3] or '', found[4] or '', found[5] or '', found[6] or '', found[7] or '', payload }
        left, size = left - 1, size + #payload
        if size > request.bytes then
          left = 0
          return
        end
      end
    end
  end
  table.sort(limited, function(a, b) return a[4] > b[4] end)
  for _, line in ipairs(limited) do collect(line[2], line[3], nil) end
  for _, misfit in ipairs(request.misfits) do collect(misfit[1], ':', misfit[2]) end
  if #rows > 0 then
    flush()
    return { now, 'give', rows }
  end
end

local cohorts, later = {}, false
for _, family in ipairs(families) do
  for _, queue in ipairs(names) do
    local list = base .. 'cohorts' .. family .. ':' .. queue
    local some = read('ZRANGEBYSCORE', list, '-inf', due, 'WITHSCORES')
    if #some > 0 then cohorts[#cohorts + 1] = { family, some } end
    local following = read('ZRANGEBYSCORE', list, '(' .. string.format('%.0f', due), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local run_at = tonumber(following[2])
    if run_at and (not later or run_at < later) then later = run_at end
  end
end

local free = {}
for _, entry in ipairs(due_runs(open, due, request.room, request.turn)) do
  local line = entry[3]
  free[#free + 1] = { entry[2], line[5], line[4], entry[1], line[2], line[3] }
end

local running, sums = {}, {}
local holders = call('HVALS', base .. 'slots')
for _, cohort in ipairs(holders) do sums[cohort] = (sums[cohort] or 0) + 1 end
for cohort, number in pairs(sums) do
  running[#running + 1] = cohort
  running[#running + 1] = number
end
flush()
return {
  now, 'runs', now, due, known[3] or 'none', running, free, cohorts, later, next_waiting(families, names, tasks),
}
