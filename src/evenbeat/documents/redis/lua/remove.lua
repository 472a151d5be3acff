-- Deletes documents whose locks are still held.
-- asked: {…, {{key, ends}, …}}. Answers {1 or 0, …}.
-- 100 documents of 6 fields: REMOVE_MS ms of the server's time.

local answers = {}
for place, lock in ipairs(asked[2]) do
  local key, found = lock[1], look(lock[1])
  local is_ours = holds(found, lock[2])
  if is_ours then
    call('ZREM', index, key)
    call('UNLINK', key)
  else
    enter(key, found)
  end
  answers[place] = is_ours and 1 or 0
end
return answers
