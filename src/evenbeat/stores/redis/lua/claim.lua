-- Claims due runs for a worker: by priority, then by time, then by id.
-- request: {worker, token, limit, now of the worker, lease, queues, tasks or false, families of formats, 1 if the
-- claim goes on from a call before, most bytes to answer}.
-- Returns {the time by which runs are due; next due or false; 1 if the runs were held already; rows of {attempt, fields}; lease_until; now}.
-- A run takes 22 us of the server's time, 35 with the append-only file.

-- Writes even if nothing is due: a replica answers reads, and an idle node would not notice that it is one.
begin()
need_for_runs()
local worker, token, limit, lease = request[1], request[2], request[3], request[5]
local due, goes_on = math.min(now, request[4]), request[9] == 1
need('hash', 'held:' .. worker)
local tasks
if request[7] then
  tasks = {}
  for _, task in ipairs(request[7]) do tasks[task] = true end
end

-- The queues of this claim, by priority: key and the argument of wait_in.
local levels = {}
for _, family in ipairs(request[8]) do
  for _, queue in ipairs(request[6]) do
    local waiting = base .. 'waiting' .. family .. ':' .. queue
    for _, member in ipairs(read('SMEMBERS', waiting)) do
      local ready = queue .. ':' .. member
      local key, priority = base .. 'ready' .. family .. ':' .. ready, tonumber(sub(member, 1, 1))
      if priority and (not tasks or tasks[sub(member, 3)]) and fits(key, 'zset') then
        levels[priority] = levels[priority] or {}
        table.insert(levels[priority], { key, family, ready })
      end
    end
  end
end

local function next_due(gone)
  local least = false
  for _, level in pairs(levels) do
    for _, queue in ipairs(level) do
      -- Claimed runs stay in the index until the end of the script.
      local first = call('ZRANGE', queue[1], gone[queue[1]] or 0, gone[queue[1]] or 0, 'WITHSCORES')
      local score = tonumber(first[2])
      if score and (not least or score < least) then least = score end
    end
  end
  return least
end

-- A repeated claim, whose reply was lost, holds its runs already.
local rows = {}
if not goes_on then
  local holds = call('HGETALL', base .. 'held:' .. worker)
  for at = 1, #holds, 2 do
    local fields = holds[at + 1] == token and read('HGETALL', base .. 'runs:' .. holds[at])
    if fields and #fields > 0 then rows[#rows + 1] = { false, fields } end
  end
  if #rows > 0 then return { now, due, next_due({}), 1, rows, 0, now } end
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

local chosen, gone = {}, {}
for priority = 9, 0, -1 do
  local level, room = levels[priority] or {}, limit - #chosen
  if room > 0 then
    local found = {}
    for _, queue in ipairs(level) do
      local some = call('ZRANGEBYSCORE', queue[1], '-inf', due, 'WITHSCORES', 'LIMIT', 0, room)
      for at = 1, #some, 2 do found[#found + 1] = { tonumber(some[at + 1]), some[at], queue } end
    end
    if #level > 1 then table.sort(found, before) end
    for at = 1, math.min(room, #found) do chosen[#chosen + 1] = found[at] end
  end
end
if #chosen == 0 then return { now, due, next_due({}), 0, rows, 0, now } end

local until_ = now + lease
local started, ends = text(now), text(until_)
local room = request[10]
for _, entry in ipairs(chosen) do
  if room <= 0 then break end
  local id, queue = entry[2], entry[3]
  local key = base .. 'runs:' .. id
  wrong = nil
  local fields = read('HGETALL', key)
  if wrong then note('default', id, wrong) end
  local state, attempt, tenant
  for at = 1, #fields, 2 do
    local name = fields[at]
    if name == 'state' then state = fields[at + 1]
    elseif name == 'attempt' then attempt = tonumber(fields[at + 1])
    elseif name == 'tenant' then tenant = fields[at + 1] end
    room = room - #fields[at + 1]
  end
  gone[queue[1]] = (gone[queue[1]] or 0) + 1
  wait_in(queue[2], queue[3], id, false)
  -- A run that does not exist, or is not queued, does not belong in a queue.
  if state == 'queued' then
    attempt = (attempt or 0) + 1
    call('HSET', key, 'state', 'running', 'attempt', attempt, 'worker', worker, 'claim', token,
      'lease_until', ends, 'started_at', started)
    place(base .. 'leases', id, until_)
    count(tenant or 'default', 'queued', -1)
    count(tenant or 'default', 'running', 1)
    hold(worker, id, token)
    rows[#rows + 1] = { attempt, fields }
  end
end
local following = next_due(gone)
flush()
return { now, due, following, 0, rows, until_, now }
