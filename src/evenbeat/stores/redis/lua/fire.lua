-- Writes the plans of due schedules: each row by itself, if it has not changed since it was reserved.
-- request: {planned rows, rows to quarantine, families of formats, the shortest and the longest wait of a refused row}.
-- A planned row: {member, path, version, active runs as they were or false, fields, wake_at or false, format,
-- runs, skipped, cancels, records or nil, records to delete or nil, facts as they were or nil}. A row to quarantine: {member, path, version, tenant, name, note}.
-- Returns {1 or 0 for each planned row, or {reason, next tick, wake_at} if a key of another type is in the way; 1 or 0
-- for each row to quarantine; next wake-up or false}.
-- A tick that becomes a run takes 28 us of the server's time, 40 with the append-only file; checking the types of the
-- keys first, which was added later, takes about a tenth more.

local function unchanged(key, version)
  local found = read('HMGET', key, 'generation', 'revision', 'fire_seq')
  return count_of(found[1]) == version[1] and count_of(found[2]) == version[2] and count_of(found[3]) == version[3]
end

-- If an active run has ended meanwhile, the schedule is planned again: the plan may wait for that run.
local function same_active(path, before)
  if not before then return true end
  local ids = read('ZRANGE', base .. 'active:' .. path, 0, -1)
  if #ids * 3 ~= #before then return false end
  for at, id in ipairs(ids) do
    local found = read('HMGET', base .. 'runs:' .. id, 'state', 'cancel_requested')
    if before[at * 3 - 2] ~= id or before[at * 3 - 1] ~= (found[1] or '')
      or before[at * 3] ~= (found[2] or '') then return false end
  end
  return true
end

-- If another schedule has succeeded meanwhile, the schedule is planned again: see take_due.lua.
local function same_facts(member, facts)
  if not facts then return true end
  local tenant, name = match(member, '^([^ ]*) (.*)$')
  if facts[1] == 'pending' then
    return pending_of(tenant, name) == facts[2]
  end
  for at = 2, #facts, 2 do
    local found = read('HMGET', base .. 'schedules:' .. path(tenant, facts[at]), 'last_success')
    if (found[1] or '') ~= facts[at + 1] then return false end
  end
  return true
end

need_for_runs()
need('hash', 'firing')
for _, family in ipairs(request[3]) do need('zset', 'due' .. family) end

local planned, fired, quarantined = {}, {}, {}
for at, row in ipairs(request[1]) do
  local member, path = row[1], row[2]
  local key = base .. 'schedules:' .. path
  planned[#planned + 1] = member
  fired[at] = 0
  if not unchanged(key, row[3]) then
    fired[at] = 0
  elseif not (can_follow(path, row[8], row[9]) and can_add_records(row[11])) then
    -- The schedule continues once the key is repaired. It waits as back_off of rules/refusals.py says.
    local tick = instant(read('HMGET', key, 'next_tick')[1] or '') or now
    local wake_at = now + math.min(math.max(now - tick, request[4]), request[5])
    fired[at] = { wrong, tick, wake_at }
    call('HSET', key, 'next_tick', text(tick), 'wake_at', text(wake_at))
    place(base .. 'due' .. family_of(row[7]), member, wake_at)
  elseif same_active(path, row[4]) and same_facts(member, row[13]) then
    call('HSET', key, unpack(row[5]))
    place(base .. 'due' .. family_of(row[7]), member, row[6])
    follow(path, member, row[8], row[9], row[10])
    add_records(row[11])
    drop_records(row[12])
    fired[at] = 1
  end
end
for at, row in ipairs(request[2]) do
  local member = row[1]
  local key = base .. 'schedules:' .. row[2]
  planned[#planned + 1] = member
  quarantined[at] = 0
  if unchanged(key, row[3]) then
    if row[3][2] then call('HSET', key, 'wake_at', '') end
    for _, family in ipairs(request[3]) do place(base .. 'due' .. family, member, false) end
    note(row[4], row[5], row[6])
    quarantined[at] = 1
  end
end
flush()
if #planned > 0 then call('HDEL', base .. 'firing', unpack(planned)) end
return { now, fired, quarantined, next_wake(request[3]) }
