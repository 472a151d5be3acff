-- The beginning of every script.
--
-- KEYS[1] is "{evenbeat}:meta"; every other key begins with the same "{evenbeat}:". Keys are computed here, from
-- names in the data: a schedule has runs, a run has a queue. Redis wants keys declared so that a cluster can
-- find the node of a script; with one hash tag for all of them that node is the same for each key.
-- ARGV[1] is the time in milliseconds, or empty: the server's own. ARGV[2] is the request, as MessagePack.

local call, floor, match, sub, find = redis.call, math.floor, string.match, string.sub, string.find
local base = sub(KEYS[1], 1, -5)
local request = cmsgpack.unpack(ARGV[2])

-- While a cluster moves the slot key by key, a node does not answer for keys that it does not have: then this command
-- fails, before anything is written.
call('EXISTS', base .. 'nothing')

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local time = call('TIME')
  now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

-- An instant as RFC 3339, with milliseconds only where there are some; beyond the years 1 to 9999 as a number.
local written = {}
local function text(ms)
  if written[ms] then return written[ms] end
  if ms < -62135510400000 or ms > 253402214399999 then return string.format('%.0f', ms) end
  local seconds = floor(ms / 1000)
  local days = floor(seconds / 86400)
  local rest = seconds - days * 86400
  local shifted = days + 719468
  local era = floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local years = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * years + floor(years / 4) - floor(years / 100))
  local month = floor((5 * of_year + 2) / 153)
  local day = of_year - floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  local year = years + era * 400 + (month <= 2 and 1 or 0)
  local fraction = ms - seconds * 1000
  local found = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year, month, day, floor(rest / 3600),
    floor(rest / 60) % 60, rest % 60) .. (fraction > 0 and string.format('.%03dZ', fraction) or 'Z')
  written[ms] = found
  return found
end

-- Reads an instant; nil if the text is not one.
local function instant(value)
  if not value or value == '' then return nil end
  local year, month, day, hour, minute, second, fraction =
    match(value, '^(%d%d%d%d)%-(%d%d)%-(%d%d)T(%d%d):(%d%d):(%d%d)%.?(%d*)Z$')
  if not year then return tonumber(value) end
  year, month = tonumber(year), tonumber(month)
  if month <= 2 then year = year - 1 end
  local era = floor(year / 400)
  local of_era = year - era * 400
  local of_year = floor((153 * (month > 2 and month - 3 or month + 9) + 2) / 5) + tonumber(day) - 1
  local days = era * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100) + of_year - 719468
  local seconds = days * 86400 + hour * 3600 + minute * 60 + second
  return seconds * 1000 + floor(tonumber('0' .. (fraction ~= '' and '.' .. fraction or '')) * 1000 + 0.5)
end

-- The server never refuses a script after its first write: it checks its memory before that, and not again. It always
-- allows deleting a key that does not exist. So scripts that end work (claim, settle, purge) run when maxmemory is
-- reached, and only those that add work are refused.
local function begin()
  call('DEL', base .. 'nothing')
end

-- Lua is not rolled back: a command that meets a key of another type ends a script between two writes. So the type of
-- each key is checked before it is written. A row with a key of a wrong type is not written; if all rows share that
-- key, the script ends before its first write. About 1 us for each key.
local types, wrong = {}, nil

-- Whether a key has the right type, or does not exist; otherwise `wrong` says which type it has.
local function fits(key, kind)
  local found = types[key]
  if not found then
    found = call('TYPE', key).ok
    types[key] = found
  end
  if found == kind or found == 'none' then return true end
  wrong = key .. ' is a ' .. found .. ', not a ' .. kind
  return false
end

-- Runs a command that reads a key; returns an empty reply if the key has another type. Costs nothing more.
local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if not reply.err then return reply end
  if not find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err, 0) end
  wrong = key .. ' is a ' .. call('TYPE', key).ok
  return {}
end

local function need(kind, ...)
  for _, name in ipairs({ ... }) do
    if not fits(base .. name, kind) then error('WRONGTYPE ' .. wrong, 0) end
  end
end

-- Changes of indexes are collected and written at the end, each key once; of two changes for one member the last one
-- counts. A caller that adds a member has checked the key's type; a key of another type has no members to remove.
local sorted, held, slots, lines, counts = {}, {}, {}, {}, {}

local function place(key, member, score)
  local changes = sorted[key]
  if not changes then
    changes = {}
    sorted[key] = changes
  end
  changes[member] = score
end

-- Adds a running run, with its claim, to the runs of a worker, or (false) removes it.
local function hold(worker, id, claim)
  held[worker] = held[worker] or {}
  held[worker][id] = claim
end

local function count(tenant, state, more)
  local field = tenant .. ' ' .. state
  counts[field] = (counts[field] or 0) + more
end

-- A queued run waits in the index of its cohort; without one, in that of "queue:priority:tenant:task".
local function line_of(family, ready, cohort)
  if cohort then return base .. 'cohort' .. family .. ':' .. cohort end
  return base .. 'ready' .. family .. ':' .. ready
end

-- Has flush compare the entry of an index in the list of indexes that are not empty.
local function recheck(family, ready, cohort)
  local key = line_of(family, ready, cohort)
  lines[key] = lines[key] or { family, ready, cohort }
  return key
end

-- Adds a queued run to its index, or (score false) removes it.
local function wait_in(family, ready, cohort, id, score)
  place(recheck(family, ready, cohort), id, score)
end

-- Sends a command in parts: Lua cannot pass more than some 8,000 values at once.
local function send(by, command, key, values)
  for first = 1, #values, 2000 do by(command, key, unpack(values, first, math.min(first + 1999, #values))) end
end

local function flush()
  for key, changes in pairs(sorted) do
    local adds, gone = {}, {}
    for member, score in pairs(changes) do
      if score then
        adds[#adds + 1] = score
        adds[#adds + 1] = member
      else
        gone[#gone + 1] = member
      end
    end
    send(call, 'ZADD', key, adds)
    send(redis.pcall, 'ZREM', key, gone)
  end
  for worker, changes in pairs(held) do
    local key, adds, gone = base .. 'held:' .. worker, {}, {}
    for id, claim in pairs(changes) do
      if claim then
        adds[#adds + 1] = id
        adds[#adds + 1] = claim
      else
        gone[#gone + 1] = id
      end
    end
    send(call, 'HSET', key, adds)
    send(redis.pcall, 'HDEL', key, gone)
  end
  local taken, free = {}, {}
  for id, cohort in pairs(slots) do
    if cohort then
      taken[#taken + 1] = id
      taken[#taken + 1] = cohort
    else
      free[#free + 1] = id
    end
  end
  send(call, 'HSET', base .. 'slots', taken)
  send(redis.pcall, 'HDEL', base .. 'slots', free)
  -- The indexes with queued runs, by the time of the first one: a claim reads those that are due. "queues" and "limited"
  -- list the queues that have any.
  for key, of in pairs(lines) do
    local queue, member = match(of[2], '^([^:]*):(.*)$')
    local kind, all = 'waiting', 'queues'
    if of[3] then queue, member, kind, all = match(of[3], '^[^ ]*'), of[3], 'cohorts', 'limited' end
    local suffix = of[1] .. ':' .. queue
    local list = base .. kind .. suffix
    if fits(list, 'zset') then
      local first = read('ZRANGE', key, 0, 0, 'WITHSCORES')
      if first[2] then
        if call('ZADD', list, first[2], member) == 1 then redis.pcall('SADD', base .. all, suffix) end
      elseif call('ZREM', list, member) == 1 and call('EXISTS', list) == 0 then
        redis.pcall('SREM', base .. all, suffix)
      end
    end
  end
  for field, more in pairs(counts) do
    if more ~= 0 then call('HINCRBY', base .. 'counts', field, more) end
  end
end

-- The name of a tenant in keys: acme/cleanup, or the name alone for the default tenant, unless a slash in the name
-- would make it ambiguous.
local function path(tenant, name)
  if tenant == 'default' and not find(name, '/', 1, true) then return name end
  return tenant .. '/' .. name
end

-- Runs. The state of a run determines its indexes:
--   queued: ready, or cohort; running: leases and held, with a cohort slots; over: over, and that of its tenant and
--   state; queued or running, of a schedule: active.
local OVER = { succeeded = true, failed = true, cancelled = true }

local function ended_key(tenant, state)
  return base .. 'over:' .. tenant .. ':' .. state
end

local function family_of(format)
  local number = tonumber(format)
  return number and number > 1 and '.' .. number or ''
end

-- Returns the fields of a run, or (names is a list) some of them, as HGETALL does; empty if the key is not a run.
local function run_fields(key, names)
  if not names then return read('HGETALL', key) end
  local values, flat = read('HMGET', key, unpack(names)), {}
  for at, name in ipairs(names) do
    if values[at] then
      flat[#flat + 1] = name
      flat[#flat + 1] = values[at]
    end
  end
  return flat
end

-- Has the next claim give cohorts to running runs: one that no claim has started may have none, and one that turned out to
-- be a flow has lost its own. The mark tells a claim that is giving cohorts just now to look again. See limited_runs.lua.
local function uncheck()
  local time = call('TIME')
  redis.pcall('HDEL', base .. 'limits', 'checked')
  redis.pcall('HSET', base .. 'limits', 'unchecked', time[1] .. '.' .. time[2])
end

local function enter(run)
  if run.state == 'queued' then
    wait_in(run.family, run.ready, run.cohort, run.id, run.run_at)
  elseif run.state == 'running' then
    place(base .. 'leases', run.id, run.lease or 0)
    if run.cohort then slots[run.id] = run.cohort end
    if run.worker then hold(run.worker, run.id, run.claim or '') end
  elseif OVER[run.state] then
    place(base .. 'over', run.id, run.finished or 0)
    place(ended_key(run.tenant, run.state), run.id, run.finished or 0)
  end
  if run.path and not OVER[run.state] then place(base .. 'active:' .. run.path, run.id, run.created) end
end

-- Whether a run can be added to its queue.
local function can_wait(family, ready, cohort)
  if not fits(line_of(family, ready, cohort), 'zset') then return false end
  if cohort then return fits(base .. 'cohorts' .. family .. ':' .. match(cohort, '^[^ ]*'), 'zset') end
  return fits(base .. 'waiting' .. family .. ':' .. match(ready, '^[^:]*'), 'zset')
end

-- Whether every key of a new run has the right type.
local function can_add(new)
  return fits(base .. 'runs:' .. new[1], 'hash')
    and fits(base .. 'newest:tenant:' .. new[2], 'zset')
    and (not new[3] or fits(base .. 'newest:schedule:' .. new[3], 'zset') and fits(base .. 'active:' .. new[3], 'zset'))
    and (new[6] ~= 'queued' or can_wait(family_of(new[4]), new[5], new[14]))
    and (not new[11] or fits(base .. 'held:' .. new[11], 'hash'))
    and (not new[14] or fits(base .. 'slots', 'hash'))
    and (not OVER[new[6]] or fits(ended_key(new[2], new[6]), 'zset'))
end

local function can_add_all(runs)
  for _, run in ipairs(runs) do
    if not can_add(run) then return false end
  end
  return true
end

-- Adds a run: {id, tenant, path of its schedule, format, ready, state, run_at, created_at, lease_until,
-- finished_at, worker, claim, fields, cohort or false}, for which can_add is true. False if a run with that id exists.
local function add_run(new)
  local id = new[1]
  local key = base .. 'runs:' .. id
  if types[key] ~= 'none' then return false end
  types[key] = 'hash'
  call('HSET', key, unpack(new[13]))
  local created = new[8]
  -- The newest first, and of equal times the smaller id: the order by the negative time.
  place(base .. 'newest', id, -created)
  place(base .. 'newest:tenant:' .. new[2], id, -created)
  if new[3] then call('ZADD', base .. 'newest:schedule:' .. new[3], -created, id) end
  count(new[2], new[6], 1)
  if new[6] == 'queued' then
    -- Almost every run. Written directly: there cannot be a collected change of a run that did not exist.
    wait_in(family_of(new[4]), new[5], new[14], id, new[7])
    if new[3] then call('ZADD', base .. 'active:' .. new[3], created, id) end
  else
    enter({
      id = id, tenant = new[2], path = new[3], state = new[6], created = created, lease = new[9], finished = new[10],
      worker = new[11], claim = new[12], cohort = new[14],
    })
    if new[6] == 'running' then uncheck() end
  end
  return true
end

-- Schedules are "acme cleanup" in indexes, in the order (tenant, name).
local function path_of(member)
  local tenant, name = match(member, '^([^ ]*) (.*)$')
  return path(tenant, name)
end

-- Checks the keys that all schedules and runs share.
local function need_for_runs()
  need('zset', 'newest', 'leases', 'over', 'skipped', 'kinds:quarantine', 'expiring')
  need('hash', 'counts')
end

-- Whether the runs, ledger rows and cancel requests of a written schedule can be written.
local function can_follow(place_in_keys, runs, skipped)
  return can_add_all(runs) and (#skipped == 0 or fits(base .. 'skipped:' .. place_in_keys, 'zset'))
end

-- Writes the runs, ledger rows and cancel requests of a written schedule.
local function follow(place_in_keys, member, runs, skipped, cancels)
  for _, run in ipairs(runs) do add_run(run) end
  for _, row in ipairs(skipped) do
    place(base .. 'skipped:' .. place_in_keys, row[3], row[1])
    place(base .. 'skipped', member .. ' ' .. row[3], row[2])
  end
  for _, id in ipairs(cancels) do
    local key = base .. 'runs:' .. id
    local state = read('HMGET', key, 'state')[1]
    if state == 'queued' or state == 'running' then call('HSET', key, 'cancel_requested', 'true') end
  end
end

local function record_key(kind, tenant, name)
  return base .. (kind == 'lock' and 'schedule_lock:' or 'records:' .. kind .. ':') .. path(tenant, name)
end

-- Records: {kind, tenant, key, version, body, expires as text, expires in ms or false}.
local function is_live(version, expires)
  local ends = instant(expires)
  return version and not (ends and ends <= now)
end

-- Marks the limits, or the claims of limited runs, as changed. The mark is a time and not a number: after a failover that
-- lost writes, the server would use a number again.
local function mark(field)
  local time = call('TIME')
  call('HSET', base .. 'limits', field, time[1] .. '.' .. time[2])
end

-- Writes a record. Its caller has checked the types of the keys.
local function write_record(key, new)
  local kind, member = new[1], new[2] .. ' ' .. new[3]
  if kind == 'limit' then mark('version') end
  call('HSET', key, 'version', new[4], 'body', new[5], 'expires', new[6])
  call('ZADD', base .. 'kinds:' .. kind, 0, member)
  if not new[7] then
    call('ZREM', base .. 'expiring', kind .. ' ' .. member)
    return
  end
  call('ZADD', base .. 'expiring', new[7], kind .. ' ' .. member)
  -- The server deletes a lock when it expires, and TTL shows for how long it is held. A late write cannot match: the
  -- version was random and is gone. Not with a clock of tests, which may stand still.
  if kind == 'lock' and ARGV[1] == '' then call('PEXPIRE', key, math.max(1, new[7] - now)) end
end

-- Whether the keys of new records (a list or nil) have the right types; need_for_runs checks the others.
local function can_add_records(records)
  if not records then return true end
  for _, new in ipairs(records) do
    if not (fits(base .. 'kinds:' .. new[1], 'zset') and fits(record_key(new[1], new[2], new[3]), 'hash')
      and (new[1] ~= 'limit' or fits(base .. 'limits', 'hash'))) then
      return false
    end
  end
  return true
end

-- Adds records, for which can_add_records is true. A record that exists and has not expired stays.
local function add_records(records)
  if not records then return end
  for _, new in ipairs(records) do
    local key = record_key(new[1], new[2], new[3])
    local found = call('HMGET', key, 'version', 'expires')
    if not is_live(found[1], found[2]) then write_record(key, new) end
  end
end

-- Writes a record, for which can_add_records is true, if the stored one has the version new[8]; false: if there is none.
local function change_record(new)
  local key = record_key(new[1], new[2], new[3])
  local found = call('HMGET', key, 'version', 'expires')
  if (is_live(found[1], found[2]) and found[1] or false) ~= new[8] then return false end
  write_record(key, new)
  return true
end

-- Deletes records (a list of {kind, tenant, key} or nil), whatever their versions.
local function drop_records(records)
  if not records then return end
  for _, one in ipairs(records) do
    call('DEL', record_key(one[1], one[2], one[3]))
    redis.pcall('ZREM', base .. 'kinds:' .. one[1], one[2] .. ' ' .. one[3])
    redis.pcall('ZREM', base .. 'expiring', one[1] .. ' ' .. one[2] .. ' ' .. one[3])
  end
end

-- The schedule that a trigger follows; nil if it has ticks of its own.
local function followed(trigger)
  return trigger and match(trigger, '^on success of (.*)$')
end

-- Returns how many successes wait for a schedule to fire them, and the range of the index with their records. An index of
-- another type has none: the other schedules fire.
local function pending_of(tenant, name)
  local first, last = '[' .. tenant .. ' ' .. name .. '/', '(' .. tenant .. ' ' .. name .. '0'
  if not fits(base .. 'kinds:success', 'zset') then return 0, first, last end
  return call('ZLEXCOUNT', base .. 'kinds:success', first, last), first, last
end

local function note(tenant, name, body)
  local key = record_key('quarantine', tenant, name)
  if not fits(key, 'hash') then return end
  local version = tonumber(call('HGET', key, 'version') or 0) or 0
  call('HSET', key, 'version', version + 1, 'body', body, 'expires', '')
  place(base .. 'kinds:quarantine', tenant .. ' ' .. name, 0)
  place(base .. 'expiring', 'quarantine ' .. tenant .. ' ' .. name, false)
end

-- Returns the earliest wake-up of schedules of these formats; false if there is none.
local function next_wake(families)
  local least = false
  for _, family in ipairs(families) do
    local first = call('ZRANGE', base .. 'due' .. family, 0, 0, 'WITHSCORES')
    local score = tonumber(first[2])
    if score and (not least or score < least) then least = score end
  end
  return least
end

-- Like rows.count_text: 0 if a count cannot be read, in reading as in comparing; false if it is missing.
local function count_of(text)
  if not text then return false end
  return string.match(text, '^%d+$') and #text < 16 and text or '0'
end

-- Returns a list as a set; nil for false.
local function set_of(names)
  if not names then return nil end
  local found = {}
  for _, name in ipairs(names) do found[name] = true end
  return found
end

-- Returns the indexes of runs without a cohort that have due runs: {key, family, ready, priority, tenant, task, queue}.
local function due_lines(families, names, tasks, due)
  local found = {}
  for _, family in ipairs(families) do
    for _, queue in ipairs(names) do
      for _, member in ipairs(read('ZRANGEBYSCORE', base .. 'waiting' .. family .. ':' .. queue, '-inf', due)) do
        local priority, tenant, task = match(member, '^(%d):([^:]*):(.*)$')
        if priority and (not tasks or tasks[task]) then
          local ready = queue .. ':' .. member
          found[#found + 1] = { line_of(family, ready), family, ready, tonumber(priority), tenant, task, queue }
        end
      end
    end
  end
  return found
end

-- Returns when the first run without a cohort is due; false if there is none. Call it after flush.
local function next_waiting(families, names, tasks)
  local least = false
  for _, family in ipairs(families) do
    for _, queue in ipairs(names) do
      local from, size, found, is_last = 0, 10, false, false
      repeat
        local some = read('ZRANGE', base .. 'waiting' .. family .. ':' .. queue, from, from + size - 1, 'WITHSCORES')
        is_last = #some < size * 2
        for at = 1, #some, 2 do
          if not tasks or tasks[match(some[at], '^[^:]*:[^:]*:(.*)$')] then
            found = tonumber(some[at + 1])
            break
          end
        end
        from, size = from + size, size * 10
      until found or is_last
      if found and (not least or found < least) then least = found end
    end
  end
  return least
end

-- Compares bytes: the server's "<" on strings depends on the locale.
local function before(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  local one, other = a[2], b[2]
  for at = 1, math.min(#one, #other) do
    local x, y = string.byte(one, at), string.byte(other, at)
    if x ~= y then return x < y end
  end
  return #one < #other
end

-- Returns due runs of one tenant and priority, by time and id: {run_at, id, index}. Leaves out the first ones.
local function due_of(some, due, first, most)
  local found = {}
  for _, line in ipairs(some) do
    local entries = read('ZRANGEBYSCORE', line[1], '-inf', due, 'WITHSCORES', 'LIMIT', 0, first + most)
    if #entries == 0 then recheck(line[2], line[3]) end
    for at = 1, #entries, 2 do found[#found + 1] = { tonumber(entries[at + 1]), entries[at], line } end
  end
  if #some > 1 then table.sort(found, before) end
  if first == 0 and #found <= most then return found end
  local part = {}
  for at = first + 1, math.min(first + most, #found) do part[#part + 1] = found[at] end
  return part
end

-- Returns tenants in the order in which a claim serves them. "<" depends on the locale, but any order makes turns, and
-- comparing bytes in Lua would take 10 ms for 1,000 tenants.
local function in_turn(tenants, turn)
  local after, others = {}, {}
  for _, tenant in ipairs(tenants) do
    local part = tenant > turn and after or others
    part[#part + 1] = tenant
  end
  table.sort(after)
  table.sort(others)
  for _, tenant in ipairs(others) do after[#after + 1] = tenant end
  return after
end

-- Chooses up to `room` due runs of indexes as due_lines returns them: by priority; within a priority the tenants in turn,
-- beginning with the one after `turn`; the runs of a tenant by time, then by id.
local function due_runs(some, due, room, turn)
  local levels, chosen = {}, {}
  for _, line in ipairs(some) do
    local level = levels[line[4]]
    if not level then
      level = { names = {}, of = {} }
      levels[line[4]] = level
    end
    local own = level.of[line[5]]
    if not own then
      own = {}
      level.of[line[5]] = own
      level.names[#level.names + 1] = line[5]
    end
    own[#own + 1] = line
  end
  for priority = 9, 0, -1 do
    local level = levels[priority]
    if level and room > 0 and #level.names == 1 then
      for _, entry in ipairs(due_of(level.of[level.names[1]], due, 0, room)) do
        chosen[#chosen + 1] = entry
        room = room - 1
      end
    elseif level and room > 0 then
      -- Each tenant gets an equal part. Those that have more divide what the others leave.
      local tenants, found = in_turn(level.names, turn), {}
      local left = tenants
      while #left > 0 and room > 0 do
        local more = {}
        for at, tenant in ipairs(left) do
          if room <= 0 then break end
          local own = found[tenant] or {}
          local most = math.ceil(room / (#left - at + 1))
          local part = due_of(level.of[tenant], due, #own, most)
          for _, entry in ipairs(part) do own[#own + 1] = entry end
          found[tenant] = own
          room = room - #part
          if #part == most then more[#more + 1] = tenant end
        end
        left = more
      end
      local at, added = 1, true
      while added do
        added = false
        for _, tenant in ipairs(tenants) do
          local entry = found[tenant] and found[tenant][at]
          if entry then
            chosen[#chosen + 1] = entry
            added = true
          end
        end
        at = at + 1
      end
    end
  end
  return chosen
end

-- Returns the runs that a worker holds with a claim's token: a repeated claim, whose reply was lost, finds them.
local function held_by(worker, token)
  local rows = {}
  local holds = call('HGETALL', base .. 'held:' .. worker)
  for at = 1, #holds, 2 do
    local fields = holds[at + 1] == token and read('HGETALL', base .. 'runs:' .. holds[at])
    if fields and #fields > 0 then rows[#rows + 1] = { false, fields } end
  end
  return rows
end

-- Reads a run to be claimed: {fields, state, attempt, tenant, cohort, size}. Notes a key of another type.
local function read_to_claim(id)
  wrong = nil
  local fields = read('HGETALL', base .. 'runs:' .. id)
  if wrong then note('default', id, wrong) end
  local run = { fields = fields, tenant = 'default', size = 0 }
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if name == 'state' then run.state = value
    elseif name == 'attempt' then run.attempt = tonumber(value)
    elseif name == 'tenant' then run.tenant = value
    elseif name == 'cohort' then run.cohort = value end
    run.size = run.size + #value
  end
  return run
end

-- Starts a queued run that read_to_claim returned; the caller removes it from its index. started: when the claim was
-- decided, by default now. Returns {attempt, fields}.
local function start_run(id, run, worker, token, until_, started)
  local attempt = (run.attempt or 0) + 1
  call('HSET', base .. 'runs:' .. id, 'state', 'running', 'attempt', attempt, 'worker', worker, 'claim', token,
    'lease_until', text(until_), 'started_at', text(started or now))
  place(base .. 'leases', id, until_)
  count(run.tenant, 'queued', -1)
  count(run.tenant, 'running', 1)
  hold(worker, id, token)
  if run.cohort then slots[id] = run.cohort end
  return { attempt, run.fields }
end
