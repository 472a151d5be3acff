-- Writes changes of documents whose locks are still held.
-- Arguments: {…, {{key, ends, sleep_until or false, {field, value, …}, {field to clear, …}}, …}}. Returns {1 or 0, …}.
-- 100 changes: 1.2 ms of the server's time, 1.5 with its append-only file.

local answers = {}
for place, entry in ipairs(arguments[2]) do
  local key, ends, upcoming, values, cleared = unpack(entry)
  local due, ms, more, between, zone = read_due(key)
  local is_ours = is_one_of(ends, ms, more)
  if is_ours then
    if upcoming then
      values[#values + 1] = sleep_until
      values[#values + 1] = write(upcoming, between, zone)
    else
      cleared[#cleared + 1] = sleep_until
    end
    change(key, values, cleared)
    due = read_due(key)
  end
  enter(key, due)
  answers[place] = is_ours and 1 or 0
end
return answers
