-- Applies transitions of runs, one after the other.
-- request: rows of {run, attempt, expected states, token, fields to set, fields to remove, state or false, delay or
-- false, lease (ms, "none" or false), finished_at (ms, "none" or false), the lease must have ended, counts the
-- attempt up, worker (a name, "" for none, or false), runs to add, statistics or false, schedule to wake or false,
-- gate ({path of a schedule, generation, revision, fire_seq or nil}) or false, claim or false, records to add or nil,
-- {new task of a queued run or false, new kind or false} of a run that leaves its cohort, or nil};
-- in place of a row {rows, for each whether it is an innermost end}: the rows of a transition with ends, in the order of
-- decisions.parts.
-- Returns {1 for each that is accepted, else 0; 1 if a schedule was woken, or a run of a cohort has left the state running}. A transition takes 24 us of the server's time,
-- 30 with the append-only file.

-- Schedules whose runs ended: {sums of figures or nil, member to wake or nil, successes or nil} by path.
local touched = {}
local woken = 0
local function touch(owner)
  touched[owner] = touched[owner] or {}
  return touched[owner]
end

local function is_expected(state, expected)
  for _, one in ipairs(expected) do
    if one == state then return true end
  end
  return false
end

local function leave(run)
  if run.state == 'queued' then
    wait_in(run.family, run.ready, run.cohort, run.id, false)
  elseif run.state == 'running' then
    place(base .. 'leases', run.id, false)
    if run.cohort then slots[run.id] = false end
    if run.worker then hold(run.worker, run.id, false) end
  elseif OVER[run.state] then
    place(base .. 'over', run.id, false)
    place(ended_key(run.tenant, run.state), run.id, false)
  end
  if run.path then place(base .. 'active:' .. run.path, run.id, false) end
end

-- Like decisions.added: counts are summed, and fields that are not given stay unchanged.
local function add_figures(more)
  local schedule = touch(more[1])
  local sum = schedule[1]
  if not sum then
    sum = { 0, 0, 0, {} }
    schedule[1] = sum
  end
  for at = 1, 3 do sum[at] = sum[at] + more[at + 1] end
  for name, value in pairs(more[5]) do sum[4][name] = value end
end

local function follows(after, leader)
  for name in string.gmatch(match(after or '', '^(.-) within ') or '', '[^, ]+') do
    if name == leader then return true end
  end
  return false
end

-- Adds the record of a success that a follower has not fired yet, like dependencies.pending_record.
local function add_pending(tenant, name, generation, state, success)
  local id, tick = success[1], success[2]
  local own = string.find(id, '/', 1, true) and id or string.format('%s@%.0f', id, success[3])
  local new = {
    'success', tenant, name .. '/' .. own, '1', string.format('{"run":%s,"tick":%s,"at":%.0f,"generation":%s%s}',
      cjson.encode(id), tick and string.format('%.0f', tick) or 'null', success[3], count_of(generation) or '0',
      state == 'paused' and ',"paused":true' or ''), '', false,
  }
  if can_add_records({ new }) then add_records({ new }) else note(tenant, id, wrong) end
end

-- What successes of a schedule do to one of its followers, like dependencies.woken.
local function wake_follower(tenant, name, leader, successes)
  local key = base .. 'schedules:' .. path(tenant, name)
  local found = read('HMGET', key, 'trigger', 'after', 'state', 'generation', 'next_run', 'wake_at', 'format', 'fire_seq')
  local state, tick, wake_at = found[3], instant(found[5]), instant(found[6])
  local at = nil
  if followed(found[1]) == leader then
    if state ~= 'active' and state ~= 'paused' then return end
    for _, success in ipairs(successes) do add_pending(tenant, name, found[4], state, success) end
    if not wake_at or wake_at > now then at = now end
    -- A user who has not seen the records may end what they wait for: that write is refused.
    call('HSET', key, 'fire_seq', string.format('%.0f', tonumber(count_of(found[8]) or '0') + 1))
  elseif state == 'active' and follows(found[2], leader) then
    if wake_at and tick and wake_at > tick then at = tick end
  end
  if at then
    call('HSET', key, 'wake_at', text(at))
    place(base .. 'due' .. family_of(found[7]), tenant .. ' ' .. name, at)
    woken = 1
  end
end

-- Statistics and wake-up of a schedule, once for a batch.
local function finish(owner, sum, member, successes)
  local key = base .. 'schedules:' .. owner
  local found = read('HMGET', key, 'run_count', 'success_count', 'failure_count', 'overlap', 'max_concurrent', 'state',
    'wake_at', 'next_run', 'format', 'followers')
  if #found == 0 then return end
  local fields = {}
  if sum then
    fields = {
      'run_count', (tonumber(found[1]) or 0) + sum[1], 'success_count', (tonumber(found[2]) or 0) + sum[2],
      'failure_count', (tonumber(found[3]) or 0) + sum[3],
    }
    for name, value in pairs(sum[4]) do
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  -- Like firing.waits: a schedule that limits its active runs and may be waiting with its next tick.
  local is_bounded = found[4] and (found[4] ~= 'allow' or (found[5] or '') ~= '')
  if member and is_bounded and found[6] == 'active' then
    local wake_at, tick = instant(found[7]), instant(found[8])
    if wake_at and tick and wake_at > tick then
      fields[#fields + 1] = 'wake_at'
      fields[#fields + 1] = text(tick)
      place(base .. 'due' .. family_of(found[9]), member, tick)
      woken = 1
    end
  end
  if #fields > 0 then call('HSET', key, unpack(fields)) end
  if successes and member and (found[10] or '') ~= '' then
    local tenant, leader = match(member, '^([^ ]*) (.*)$')
    for name in string.gmatch(found[10], '%S+') do wake_follower(tenant, name, leader, successes) end
  end
end

-- Whether the schedule of a gate has the expected generation and revision, and fire_seq if there is one; 0 means that
-- there is no schedule.
local function passes(gate)
  if not gate then return true end
  local key = base .. 'schedules:' .. gate[1]
  local found = read('HMGET', key, 'generation', 'revision', 'fire_seq')
  if not found[2] then return gate[2] == '0' and gate[3] == '0' end
  return found[1] == gate[2] and found[2] == gate[3] and (not gate[4] or found[3] == gate[4])
end

-- The index of a queued run after it was moved to another task, or became another kind.
local function moved(run, regrouped)
  return regrouped[1] and match(run.ready, '^[^:]*:[^:]*:[^:]*:') .. regrouped[1] or run.ready
end

-- The definition of a run with another kind. A quotation mark within a text is escaped, so this finds nothing else.
local function with_kind(definition, kind)
  return '{"kind":"' .. kind .. '",' .. string.gsub(sub(definition, 2), '"kind":"%a+",?', '', 1)
end

local function moment(given, known)
  if given == 'none' then return nil end
  return given or instant(known)
end

-- found: state, attempt, settled, tenant, schedule, worker, lease_until, error, result, cohort, claim.
-- Returns the run as its indexes need it; nil, without writing anything, if a key that it is to be added to has another type.
local function standing(row, key, found, after)
  local id, state, tenant = row[1], found[1], found[4] or 'default'
  local run = { id = id, tenant = tenant, state = state, path = found[5] and path(tenant, found[5]), worker = found[6] }
  run.cohort = found[10] or nil
  if OVER[after] and not fits(ended_key(tenant, after), 'zset') then return nil end
  if state == 'running' and not row[20] and (OVER[after] or after == 'running' and not row[13]) then return run end
  -- Every transition but the end of an attempt and a heartbeat needs more fields: the run's queue and created_at.
  local more = call('HMGET', key, 'format', 'queue', 'priority', 'task', 'claim', 'run_at', 'created_at', 'finished_at')
  run.family = family_of(more[1])
  run.ready = (more[2] or '') .. ':' .. (more[3] or '') .. ':' .. tenant .. ':' .. (more[4] or '')
  run.claim, run.run_at, run.created = more[5], instant(more[6]) or 0, instant(more[7]) or 0
  run.finished = instant(more[8])
  if after == 'queued' and not can_wait(run.family, run.ready, run.cohort) then return nil end
  if row[20] and not can_wait(run.family, moved(run, row[20]), nil) then return nil end
  if run.path and not OVER[after] and not fits(base .. 'active:' .. run.path, 'zset') then return nil end
  if after == 'running' and row[13] and row[13] ~= '' and not fits(base .. 'held:' .. row[13], 'hash') then return nil end
  if after == 'running' and run.cohort and not fits(base .. 'slots', 'hash') then return nil end
  return run
end

-- Returns the run of a transition as standing does; nil if a key that the transition is to write has another type.
local function writable(row, key, found)
  local run = standing(row, key, found, row[7] or found[1])
  if run and can_add_all(row[14]) and can_add_records(row[19]) then return run end
  return nil
end

-- Writes the fields and the indexes of a run that writable returned.
local function change(row, key, found, run)
  local id, state = row[1], found[1]
  local after = row[7] or state
  local fields, gone = row[5], row[6]
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if row[8] then
    run.run_at = now + row[8]
    set('run_at', text(run.run_at))
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

  if after == 'running' and state == 'running' and not row[13] and not row[20] then
    -- A heartbeat: almost always it changes only the lease.
    if lease then place(base .. 'leases', id, lease == 'none' and 0 or lease) end
    return
  end
  if row[20] then
    local definition = row[20][2] and call('HGET', key, 'definition')
    if definition then call('HSET', key, 'definition', with_kind(definition, row[20][2])) end
    if run.cohort then call('HDEL', key, 'cohort') end
  end
  if after ~= state or row[13] or row[20] then
    leave(run)
    if row[20] then
      -- It waits in the index of its new task, or counts as its new kind. The next claim gives it a cohort, if there is a limit.
      if state == 'running' and run.cohort then woken = 1 end
      if after == 'running' then uncheck() end
      run.ready, run.cohort = moved(run, row[20]), nil
    end
    if after ~= state then
      local tenant = found[4] or 'default'
      count(tenant, state, -1)
      count(tenant, after, 1)
      if after == 'running' then uncheck() end
      if state == 'running' and run.cohort then woken = 1 end
    end
  end
  run.state = after
  if row[13] then run.worker = row[13] ~= '' and row[13] or nil end
  if after == 'running' then run.lease = moment(lease, found[7]) end
  if OVER[after] then run.finished = moment(finished, nil) or run.finished end
  enter(run)
end

local function apply(row, key, found, run)
  change(row, key, found, run)
  if row[17] and row[17][4] then
    -- A user who has not seen the run become active may add another one: that write is refused.
    call('HSET', base .. 'schedules:' .. row[17][1], 'fire_seq', string.format('%.0f', tonumber(row[17][4]) + 1))
  end
  for _, new in ipairs(row[14]) do add_run(new) end
  add_records(row[19])
  if row[15] then
    add_figures(row[15])
    if row[15][3] > 0 then
      local schedule = touch(row[15][1])
      schedule[3] = schedule[3] or {}
      schedule[3][#schedule[3] + 1] = { row[1], row[15][6], type(row[10]) == 'number' and math.min(row[10], now) or now }
    end
  end
  if row[16] then touch(path_of(row[16]))[2] = row[16] end
end

local function status(key)
  return read('HMGET', key, 'state', 'attempt', 'settled', 'tenant', 'schedule', 'worker', 'lease_until', 'error',
    'result', 'cohort', 'claim')
end

-- Like decisions.verdict, with the gate.
local function verdict(row, found)
  if not found[1] then return 'refuse' end
  if found[3] == row[4] then return 'repeat' end
  if found[2] ~= row[2] or (found[11] or false) ~= row[18] or not is_expected(found[1], row[3])
    or (row[11] and (instant(found[7]) or 0) > now) or not passes(row[17]) then
    return 'refuse'
  end
  return 'apply'
end

local function settle(row)
  local key = base .. 'runs:' .. row[1]
  local found = status(key)
  local decision = verdict(row, found)
  if decision ~= 'apply' then return decision == 'repeat' and 1 or 0 end
  local run = writable(row, key, found)
  if not run then
    note(found[4] or 'default', row[1], wrong)
    return 0
  end
  apply(row, key, found, run)
  return 1
end

-- Applies all parts of a transition with ends, or none: like decisions.joint_verdict. Nothing is written before every
-- part is checked.
local function settle_jointly(rows, are_innermost)
  local keys, statuses, runs, seen = {}, {}, {}, {}
  local all_apply, all_repeat = true, true
  for at, row in ipairs(rows) do
    if seen[row[1]] then return 0 end
    seen[row[1]] = true
    keys[at] = base .. 'runs:' .. row[1]
    statuses[at] = status(keys[at])
    local decision = verdict(row, statuses[at])
    if decision ~= 'apply' then all_apply = false end
    if decision ~= 'repeat' and are_innermost[at] then all_repeat = false end
  end
  if not all_apply then return all_repeat and 1 or 0 end
  for at, row in ipairs(rows) do
    runs[at] = writable(row, keys[at], statuses[at])
    if not runs[at] then
      note(statuses[at][4] or 'default', row[1], wrong)
      return 0
    end
  end
  for at, row in ipairs(rows) do apply(row, keys[at], statuses[at], runs[at]) end
  return 1
end

-- Only what may wake a schedule needs their index: without it, runs can still be settled.
local function need_due(rows)
  for _, row in ipairs(rows) do
    if type(row[1]) == 'table' then
      need_due(row[1])
    elseif row[16] then
      need('zset', 'due')
    end
  end
end

local answers = {}
begin()
need_for_runs()
need_due(request)
for at, row in ipairs(request) do
  if type(row[1]) == 'table' then
    answers[at] = settle_jointly(row[1], row[2])
  else
    answers[at] = settle(row)
  end
end
for owner, schedule in pairs(touched) do finish(owner, schedule[1], schedule[2], schedule[3]) end
flush()
return { now, answers, woken }
