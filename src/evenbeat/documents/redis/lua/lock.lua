-- Locks documents that are due.
-- Arguments: {…, now or false for the server's own time, duration of the lock, limit, rescan, most keys of a small database}.
-- Returns {now; rows of {key, sleep_until, fields}; 1 if there may be more; next due or false; 1 if the database is small and may
-- be scanned as a whole; 1 if the common round of the scan may go on; documents with invalid times}.
-- 100 documents of 6 fields: 1.2 ms of the server's time, 1.5 with its append-only file.

local now, limit, rescan, small = arguments[2] or time, arguments[4], arguments[5], arguments[6]
local until_ = now + arguments[3]

-- Each document that is read leaves the head of the index: it is locked, removed, or moved to when it is due.
local rows, visited, is_empty = {}, 0, false
while #rows < limit and visited < 1000 and not is_empty do
  local some = call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, limit - #rows)
  is_empty = #some == 0
  visited = visited + #some
  for _, key in ipairs(some) do
    local due, ms, _, between, zone = read_due(key)
    if due and due <= now then
      local fields = call('HGETALL', key)
      call('ZADD', index, until_, key)
      call('HSET', key, sleep_until, write(until_, between, zone))
      rows[#rows + 1] = { key, ms, fields }
    else
      enter(key, due)
    end
  end
end

-- Changes nothing, but a replica refuses it: a processor with nothing to do would not notice that the server is one.
if #rows == 0 then call('PERSIST', note) end

-- When the next document is due, once the index has the right value for it.
local upcoming = false
if is_empty then
  for _ = 1, 100 do
    local first = call('ZRANGE', index, 0, 0, 'WITHSCORES')
    upcoming = tonumber(first[2]) or false
    if not upcoming then break end
    local due = read_due(first[1])
    if due == upcoming then break end
    enter(first[1], due)
  end
end

local state = read_note()
local is_small = call('DBSIZE') <= small and state.free <= time
return { now, rows, is_empty and 0 or 1, upcoming, is_small and 1 or 0, may_go_on(state, rescan) and 1 or 0, invalid }
