-- Finds schedules in the order (tenant, name), a part of them at a time.
-- asked: {from, to, how many to read, how many to find, {field = value}, states that do not match, changed since or false}.
-- Returns {the last one read, or false at the end; rows of {member, fields}}.

local members = call('ZRANGEBYLEX', base .. 'schedules', asked[1], asked[2], 'LIMIT', 0, asked[3])
local equal, unwanted, since = asked[5], {}, asked[7]
for _, state in ipairs(asked[6]) do unwanted[state] = true end
local rows, last = {}, false
for at, member in ipairs(members) do
  local key = base .. 'schedules:' .. path_of(member)
  local found = read('HMGET', key, 'state', 'updated_at', 'task')
  local wanted = not (found[1] and unwanted[found[1]])
  if equal.task and found[3] ~= equal.task then wanted = false end
  if equal.name and string.match(member, ' (.*)$') ~= equal.name then wanted = false end
  if since and (instant(found[2]) or 0) < since then wanted = false end
  if wanted then rows[#rows + 1] = { member, read('HGETALL', key) } end
  if #rows >= asked[4] or at >= asked[3] then
    last = member
    break
  end
end
return { now, last, rows }
