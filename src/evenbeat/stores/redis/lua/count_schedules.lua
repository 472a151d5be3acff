-- Counts the schedules of each tenant that are not deleted, a part of them at a time.
-- request: {from, to, how many to read}. Returns {the last one read, or false at the end; rows of {tenant, schedules, active, paused}}.

local members = call('ZRANGEBYLEX', base .. 'schedules', request[1], request[2], 'LIMIT', 0, request[3])
local of, rows = {}, {}
for _, member in ipairs(members) do
  local state = read('HMGET', base .. 'schedules:' .. path_of(member), 'state')[1]
  if state ~= 'deleted' then
    local tenant = match(member, '^[^ ]*')
    local row = of[tenant]
    if not row then
      row = { tenant, 0, 0, 0 }
      of[tenant] = row
      rows[#rows + 1] = row
    end
    row[2] = row[2] + 1
    if state == 'active' then row[3] = row[3] + 1 end
    if state == 'paused' then row[4] = row[4] + 1 end
  end
end
return { now, #members == request[3] and members[#members] or false, rows }
