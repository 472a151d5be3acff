-- Transitions of runs: each in turn, seen by the next.
-- asked: rows of {run, attempt, expected states, token, fields to set, fields to remove, state or false, delay or
-- false, lease (ms, "none" or false), finished_at (ms, "none" or false), the lease must have ended, counts the
-- attempt up, worker (a name, "" for none, or false), runs to add, statistics or false, schedule to wake or false,
-- gate ({path of a schedule, generation, revision}) or false}.
-- Answers 1 for each that is accepted, else 0. 24 us of the server's time for each, 30 with its
-- append-only file.

local COUNTED = { 'run_count', 'success_count', 'failure_count' }
local figures = {}

local function is_expected(state, expected)
  for _, one in ipairs(expected) do
    if one == state then return true end
  end
  return false
end

local function leave(run)
  if run.state == 'queued' then
    wait_in(run.family, run.ready, run.id, false)
  elseif run.state == 'running' then
    place(base .. 'leases', run.id, false)
    if run.worker then hold(run.worker, run.id, false) end
  elseif OVER[run.state] then
    place(base .. 'over', run.id, false)
  end
  if run.path then place(base .. 'active:' .. run.path, run.id, false) end
end

-- As decisions.added: counts are summed, and what is not said stays as it was.
local function add_figures(more)
  local sum = figures[more[1]]
  if not sum then
    sum = { 0, 0, 0, {} }
    figures[more[1]] = sum
  end
  for at = 1, 3 do sum[at] = sum[at] + more[at + 1] end
  for name, value in pairs(more[5]) do sum[4][name] = value end
end

-- As firing.waits: a schedule that bounds its active runs and may be waiting with its next tick.
local function wake(member)
  local key = base .. 'schedules:' .. path_of(member)
  local found = call('HMGET', key, 'overlap', 'max_concurrent', 'state', 'wake_at', 'next_run', 'format')
  if not found[1] or (found[1] == 'allow' and (found[2] or '') == '') or found[3] ~= 'active' then return end
  local wake_at, tick = instant(found[4]), instant(found[5])
  if wake_at and tick and wake_at > tick then
    call('HSET', key, 'wake_at', text(tick))
    place(base .. 'due' .. family_of(found[6]), member, tick)
  end
end

-- Whether the schedule of a gate is as the transition expects; numbers of 0 stand for "there is none".
local function passes(gate)
  if not gate then return true end
  local found = call('HMGET', base .. 'schedules:' .. gate[1], 'generation', 'revision')
  if not found[2] then return gate[2] == '0' and gate[3] == '0' end
  return found[1] == gate[2] and found[2] == gate[3]
end

local function moment(said, known)
  if said == 'none' then return nil end
  return said or instant(known)
end

-- found: state, attempt, settled, tenant, schedule, worker, lease_until, error, result.
local function apply(row, key, found)
  local id, state = row[1], found[1]
  local after = row[7] or state
  local fields, gone = row[5], row[6]
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local run_at
  if row[8] then
    run_at = now + row[8]
    set('run_at', text(run_at))
  end
  local lease, finished = row[9], row[10]
  if lease then
    if lease ~= 'none' then lease = now + lease end
    set('lease_until', lease == 'none' and '' or text(lease))
  end
  if finished then
    if finished ~= 'none' then finished = math.min(finished, now) end
    set('finished_at', finished == 'none' and '' or text(finished))
  end
  if row[12] then set('attempt', tonumber(row[2]) + 1) end
  set('settled', row[4])
  call('HSET', key, unpack(fields))
  for _, name in ipairs(gone) do
    if (name == 'error' and found[8]) or (name == 'result' and found[9]) or (name == 'worker' and found[6]) then
      call('HDEL', key, name)
    end
  end

  if after == 'running' and state == 'running' and not row[13] then
    -- A sign of life: all but always the lease and nothing else.
    if lease then place(base .. 'leases', id, lease == 'none' and 0 or lease) end
    return
  end
  local tenant, worker = found[4] or 'default', found[6]
  local run = { id = id, state = state, path = found[5] and path(tenant, found[5]), worker = worker }
  if not (state == 'running' and OVER[after]) then
    -- All but the end of an attempt has to know more: where the run waits, and since when it is.
    local more = call('HMGET', key, 'format', 'queue', 'priority', 'task', 'claim', 'run_at', 'created_at',
      'finished_at')
    run.family = family_of(more[1])
    run.ready = (more[2] or '') .. ':' .. (more[3] or '') .. ':' .. (more[4] or '')
    run.claim, run.run_at, run.created = more[5], run_at or instant(more[6]) or 0, instant(more[7]) or 0
    run.finished = instant(more[8])
  end
  if after ~= state or row[13] then
    leave(run)
    if after ~= state then
      count(tenant, state, -1)
      count(tenant, after, 1)
    end
  end
  run.state = after
  if row[13] then run.worker = row[13] ~= '' and row[13] or nil end
  if after == 'running' then run.lease = moment(lease, found[7]) end
  if OVER[after] then run.finished = moment(finished, nil) or run.finished end
  enter(run)
end

local answers = {}
begin()
for at, row in ipairs(asked) do
  local key = base .. 'runs:' .. row[1]
  local found = call('HMGET', key, 'state', 'attempt', 'settled', 'tenant', 'schedule', 'worker', 'lease_until',
    'error', 'result')
  if not found[1] then
    answers[at] = 0
  elseif found[3] == row[4] then
    answers[at] = 1
  elseif found[2] ~= row[2] or not is_expected(found[1], row[3])
    or (row[11] and (instant(found[7]) or 0) > now) or not passes(row[17]) then
    answers[at] = 0
  else
    apply(row, key, found)
    for _, run in ipairs(row[14]) do add_run(run) end
    if row[15] then add_figures(row[15]) end
    if row[16] then wake(row[16]) end
    answers[at] = 1
  end
end
flush()
for owner, sum in pairs(figures) do
  local key = base .. 'schedules:' .. owner
  local found = call('HMGET', key, unpack(COUNTED))
  local fields = {}
  for at, name in ipairs(COUNTED) do
    fields[#fields + 1] = name
    fields[#fields + 1] = (tonumber(found[at]) or 0) + sum[at]
  end
  for name, value in pairs(sum[4]) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  call('HSET', key, unpack(fields))
end
return { now, answers }
