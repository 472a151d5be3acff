-- Due schedules for one node to plan: the earliest first, but for those that others are planning just now.
-- asked: {now of the node, limit, who asks, how long they are held, 1 to ask nobody, families of formats, fields
-- that a plan needs, with overlap and max_concurrent the first and the definition the last, most bytes of those}.
-- Answers {the time by which they are due; next wake-up or false; rows of {member, values, active runs or false};
-- 1 if more was to be had than those bytes allow}.
--
-- 10 us of the server's time for each, 15 with its append-only file.
--
-- Holding is a courtesy that keeps two nodes from planning the same rows; what guards them is the
-- compare-and-set of fire.lua. One node that dies with rows in hand delays them until the hold ends.

local due = math.min(now, asked[1])
local limit, who, anyone = asked[2], asked[3], asked[5] == 1
local until_ = now + asked[4]
local firing = base .. 'firing'
need('hash', 'firing')
local taken = {}

local function free(hold)
  if not hold or anyone then return true end
  local ends, owner = match(hold, '^(%S+) (.*)$')
  -- One that lies further ahead than any hold can was given by a clock that was set back since.
  return owner == who or tonumber(ends) <= now or tonumber(ends) > until_
end

for _, family in ipairs(asked[6]) do
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

local rows, holds, room = {}, {}, asked[8]
for _, member in ipairs(taken) do
  if room <= 0 then break end
  local path = path_of(member)
  local fields = read('HMGET', base .. 'schedules:' .. path, unpack(asked[7]))
  local overlap, most = fields[1], fields[2]
  room = room - #(fields[#asked[7]] or '')
  local active = false
  if overlap and (overlap ~= 'allow' or (most and most ~= '')) then
    active = {}
    for _, id in ipairs(read('ZRANGE', base .. 'active:' .. path, 0, -1)) do
      local found = read('HMGET', base .. 'runs:' .. id, 'state', 'cancel_requested')
      active[#active + 1] = id
      active[#active + 1] = found[1] or ''
      active[#active + 1] = found[2] or ''
    end
  end
  rows[#rows + 1] = { member, fields, active }
  holds[#holds + 1] = member
  holds[#holds + 1] = string.format('%.0f %s', until_, who)
end
if #holds > 0 then
  -- One value too long for a compact hash, in which each of hundreds of members would be searched for.
  call('HSET', firing, '-', string.rep('-', 65), unpack(holds))
  call('PEXPIRE', firing, 60000)
end
return { now, due, next_wake(asked[6]), rows, #taken > #rows and 1 or 0 }
