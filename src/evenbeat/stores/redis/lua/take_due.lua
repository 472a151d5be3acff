-- Reserves due schedules for one node to plan: the earliest first, without those that other nodes have reserved.
-- request: {now of the node, limit, name of the node, how long they are reserved, 1 to ignore reservations, families of
-- formats, fields that a plan needs, with overlap, max_concurrent, trigger and after the first and the definition the last,
-- most bytes of those, how many pending successes a plan gets}.
-- Returns {the time by which they are due; next wake-up or false; rows of {member, values, active runs or false, facts or
-- nil}; 1 if there were more than those bytes allow}. Facts: {'after', name, its last success or '', …}, or {'pending', how
-- many, key, body, …}.
--
-- A schedule takes 10 us of the server's time, 15 with the append-only file.
--
-- Reservations only save work: they keep two nodes from planning the same rows. The compare-and-set of fire.lua guards
-- the rows. A node that dies delays its reserved rows until the reservation ends.

local due = math.min(now, request[1])
local limit, who, anyone = request[2], request[3], request[5] == 1
local until_ = now + request[4]
local firing = base .. 'firing'
need('hash', 'firing')
local taken = {}

local function free(hold)
  if not hold or anyone then return true end
  local ends, owner = match(hold, '^(%S+) (.*)$')
  -- A reservation that ends later than any new one could is from before the clock was set back.
  return owner == who or tonumber(ends) <= now or tonumber(ends) > until_
end

for _, family in ipairs(request[6]) do
  local offset = 0
  while #taken < limit do
    local some = call('ZRANGEBYSCORE', base .. 'due' .. family, '-inf', due, 'LIMIT', offset, limit)
    if #some == 0 then break end
    local holds = call('HMGET', firing, unpack(some))
    for at, member in ipairs(some) do
      if #taken < limit and free(holds[at]) then taken[#taken + 1] = member end
    end
    if #some < limit then break end
    offset = offset + #some
  end
end

local function facts_of(member, trigger, after)
  local tenant, name = match(member, '^([^ ]*) (.*)$')
  local facts
  if followed(trigger) then
    local number, first, last = pending_of(tenant, name)
    facts = { 'pending', number }
    local some = number > 0 and call('ZRANGEBYLEX', base .. 'kinds:success', first, last, 'LIMIT', 0, request[9]) or {}
    for _, one in ipairs(some) do
      local key = sub(one, #tenant + 2)
      facts[#facts + 1] = key
      facts[#facts + 1] = read('HMGET', record_key('success', tenant, key), 'body')[1] or ''
    end
    return facts
  end
  facts = { 'after' }
  for before in string.gmatch(match(after, '^(.-) within ') or '', '[^, ]+') do
    facts[#facts + 1] = before
    facts[#facts + 1] = read('HMGET', base .. 'schedules:' .. path(tenant, before), 'last_success')[1] or ''
  end
  return facts
end

local rows, holds, room = {}, {}, request[8]
for _, member in ipairs(taken) do
  if room <= 0 then break end
  local own = path_of(member)
  local fields = read('HMGET', base .. 'schedules:' .. own, unpack(request[7]))
  local overlap, most, trigger, after = fields[1], fields[2], fields[3], fields[4]
  room = room - #(fields[#request[7]] or '')
  local active = false
  if overlap and (overlap ~= 'allow' or (most and most ~= '')) then
    active = {}
    for _, id in ipairs(read('ZRANGE', base .. 'active:' .. own, 0, -1)) do
      local found = read('HMGET', base .. 'runs:' .. id, 'state', 'cancel_requested')
      active[#active + 1] = id
      active[#active + 1] = found[1] or ''
      active[#active + 1] = found[2] or ''
    end
  end
  local row = { member, fields, active }
  if after and after ~= '' or followed(trigger) then row[4] = facts_of(member, trigger, after) end
  rows[#rows + 1] = row
  holds[#holds + 1] = member
  holds[#holds + 1] = string.format('%.0f %s', until_, who)
end
if #holds > 0 then
  -- One long value makes Redis use a hash table: in a compact hash, each member of hundreds would be searched for.
  call('HSET', firing, '-', string.rep('-', 65), unpack(holds))
  call('PEXPIRE', firing, 60000)
end
return { now, due, next_wake(request[6]), rows, #taken > #rows and 1 or 0 }
