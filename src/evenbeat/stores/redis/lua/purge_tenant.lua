-- Deletes rows of a tenant: of the ledger, of the statistics, and records, a part of them at a time.
-- request: {tenant, kinds, how many to delete, how many schedules to look at, the bound to read schedules from, or false if their rows
-- are gone}. Returns {how many were deleted; the bound to continue from, or false at the end of the schedules}.

begin()
need_for_runs()
local tenant, kinds, limit, from = request[1], request[2], request[3], request[5]
local gone = 0
local STATISTICS = { 'run_count', 'success_count', 'failure_count', 'last_run', 'last_success', 'last_failure', 'last_error' }
if from then
  local members = call('ZRANGEBYLEX', base .. 'schedules', from, '(' .. tenant .. '!', 'LIMIT', 0, request[4])
  for _, member in ipairs(members) do
    local ledger = base .. 'skipped:' .. path_of(member)
    if fits(ledger, 'zset') then
      for _, row in ipairs(call('ZRANGE', ledger, 0, limit - gone - 1)) do
        place(ledger, row, false)
        place(base .. 'skipped', member .. ' ' .. row, false)
        gone = gone + 1
      end
    end
    if gone >= limit then
      flush()
      return { now, gone, '[' .. member }
    end
    local key = base .. 'schedules:' .. path_of(member)
    if fits(key, 'hash') and call('HDEL', key, unpack(STATISTICS)) > 0 then gone = gone + 1 end
    from = '(' .. member
    if gone >= limit then
      flush()
      return { now, gone, from }
    end
  end
  flush()
  return { now, gone, #members == request[4] and from or false }
end
for _, kind in ipairs(kinds) do
  local index = base .. 'kinds:' .. kind
  if gone < limit and fits(index, 'zset') then
    for _, member in ipairs(call('ZRANGEBYLEX', index, '[' .. tenant .. ' ', '(' .. tenant .. '!', 'LIMIT', 0, limit - gone)) do
      call('DEL', record_key(kind, tenant, sub(member, #tenant + 2)))
      place(index, member, false)
      place(base .. 'expiring', kind .. ' ' .. member, false)
      gone = gone + 1
    end
  end
end
flush()
return { now, gone, false }
