-- A piece of the database: takes into the index what is missing there, and what is due sooner than it says.
-- asked: {…, pattern, cursor or false for that of the common round, rescan, count}.
-- Answers {cursor, false if nothing may be scanned now; how many entries were changed; 1 while the first round goes on; odd ones}.
-- 3 to 5 us of the server's time for each document, 0.8 us for each other key.

local pattern, cursor, rescan, count = asked[2], asked[3], asked[4], asked[5]
local is_common = not cursor
local state = read_note()
if is_common then
  if not may_go_on(state, rescan) then return { false, 0, 0, odd } end
  cursor = state.cursor
  if cursor == '0' then state.began = time end
end

local reply = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count, 'TYPE', 'hash')
local keys, changed = reply[2], 0
cursor = reply[1]
for from = 1, #keys, 1000 do
  -- unpack has a limit, and a piece may be larger than was wanted.
  local to = math.min(from + 999, #keys)
  local scores = call('ZMSCORE', index, unpack(keys, from, to))
  for at = from, to do
    local due = look(keys[at])
    local score = due and tonumber(scores[at - from + 1])
    if due and (not score or score > due) then
      call('ZADD', index, due, keys[at])
      changed = changed + 1
    end
  end
end

-- Entries of documents that are gone leave when they are due, which may be never: some are looked for.
for _, key in ipairs(call('ZRANDMEMBER', index, 10)) do
  if call('EXISTS', key) == 0 then changed = changed + call('ZREM', index, key) end
end

-- Scanning takes a twentieth of the server's time, for all who scan together: what it takes, about, is waited for 20 times,
-- up to 2 s in advance. The first round waits for nothing, and a handful of keys is not worth a write.
local took = (count + 5 * #keys) / 1000
if is_common then
  if state.rounds > 0 then state.free = math.max(state.free, time - 2000) + took * 20 end
  state.cursor = cursor
  if cursor == '0' then state.rounds = state.rounds + 1 end
else
  state.free = math.max(state.free, time - 2000) + took * 20
end
if is_common or call('DBSIZE') > 100 then
  call('SET', note, format('%s %.0f %.0f %.0f', state.cursor, state.began, state.free, state.rounds))
end
return { cursor, changed, (is_common and state.rounds == 0) and 1 or 0, odd }
