-- Finds schedules in the order (tenant, name), a part of them at a time.
-- request: {from, to, how many to read, how many to find, {field = value}, states that do not match, changed since or false, wakes
-- before or false, members or nil}. With members, from and to are not used; those that are not schedules are not found.
-- Returns {the last one read, or false at the end; rows of {member, fields}}.

local chosen = request[9]
local members = chosen or call('ZRANGEBYLEX', base .. 'schedules', request[1], request[2], 'LIMIT', 0, request[3])
local equal, unwanted, since, before = request[5], {}, request[7], request[8]
for _, state in ipairs(request[6]) do unwanted[state] = true end
local rows, last = {}, false
for at, member in ipairs(members) do
  local key = base .. 'schedules:' .. path_of(member)
  local found = read('HMGET', key, 'state', 'updated_at', 'task', 'wake_at')
  local wanted = not (found[1] and unwanted[found[1]])
  if equal.task and found[3] ~= equal.task then wanted = false end
  if equal.name and string.match(member, ' (.*)$') ~= equal.name then wanted = false end
  if since and (instant(found[2]) or 0) < since then wanted = false end
  if before and (instant(found[4]) or before) >= before then wanted = false end
  if wanted and chosen and not call('ZSCORE', base .. 'schedules', member) then wanted = false end
  if wanted then rows[#rows + 1] = { member, read('HGETALL', key) } end
  if #rows >= request[4] or at >= request[3] then
    last = member
    break
  end
end
return { now, last, rows }
