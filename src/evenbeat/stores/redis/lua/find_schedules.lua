-- Schedules in the order (tenant, name), a part of them at a time.
-- asked: {from, to, how many to look at, how many to find, {field = value}, states, changed since or false}.
-- Answers {the last one looked at, or false at the end; the rows}.

local members = call('ZRANGEBYLEX', base .. 'schedules', asked[1], asked[2], 'LIMIT', 0, asked[3])
local equal, states, since = asked[5], {}, asked[7]
for _, state in ipairs(asked[6]) do states[state] = true end
local rows, last = {}, false
for at, member in ipairs(members) do
  local key = base .. 'schedules:' .. path_of(member)
  local found = read('HMGET', key, 'state', 'updated_at', 'task', 'name')
  local wanted = found[1] and states[found[1]] or false
  if equal.task and found[3] ~= equal.task then wanted = false end
  if equal.name and found[4] ~= equal.name then wanted = false end
  if since and (instant(found[2]) or 0) < since then wanted = false end
  if wanted then rows[#rows + 1] = call('HGETALL', key) end
  if #rows >= asked[4] or at >= asked[3] then
    last = member
    break
  end
end
return { now, last, rows }
