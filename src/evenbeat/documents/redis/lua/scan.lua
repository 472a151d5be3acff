-- Scans some keys: adds documents to the index that are missing there, or that are due sooner than their entry.
-- Arguments: {…, pattern, cursor or false for that of the common round, rescan, count}.
-- Returns {cursor, false if no scan is allowed now; how many entries changed; 1 during the first round; documents with invalid times}.
-- 3 to 5 us of the server's time for each document, 0.8 us for each other key.

local pattern, cursor, rescan, count = arguments[2], arguments[3], arguments[4], arguments[5]
local is_common = not cursor
local state = read_note()
if is_common then
  if not may_go_on(state, rescan) then return { false, 0, 0, invalid } end
  cursor = state.cursor
  if cursor == '0' then state.began = time end
end

local reply = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count, 'TYPE', 'hash')
local keys, changed = reply[2], 0
cursor = reply[1]
for from = 1, #keys, 1000 do
  -- unpack has a limit, and SCAN may return more keys than COUNT.
  local to = math.min(from + 999, #keys)
  local scores = call('ZMSCORE', index, unpack(keys, from, to))
  for at = from, to do
    local due = read_due(keys[at])
    local score = due and tonumber(scores[at - from + 1])
    if due and (not score or score > due) then
      call('ZADD', index, due, keys[at])
      changed = changed + 1
    end
  end
end

-- Entries of deleted documents are removed when they are due, which may be never: check some at random.
for _, key in ipairs(call('ZRANDMEMBER', index, 10)) do
  if call('EXISTS', key) == 0 then changed = changed + call('ZREM', index, key) end
end

-- All processors together scan for a twentieth of the server's time: after each step, the scan waits 20 times as long as it took,
-- and up to 2 s of unused time count. The first round is not slowed down, and for a few keys the note is not written.
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
return { cursor, changed, (is_common and state.rounds == 0) and 1 or 0, invalid }
