-- Sets unreadable claimed runs to failed, each with a note: at the head of its queue, such a run would block the
-- others. A run that is not running any more is only removed from the index of leases.
-- request: {rows of {id, note}}. Returns 1 if a run of a cohort has left the state running.

begin()
need_for_runs()
local freed = 0
for _, row in ipairs(request) do
  local id, key = row[1], base .. 'runs:' .. row[1]
  wrong = nil
  local found = read('HMGET', key, 'state', 'tenant', 'schedule', 'worker', 'cohort')
  local tenant = found[2] or 'default'
  if found[5] or not found[1] then slots[id] = false end
  if found[1] ~= 'running' then
    place(base .. 'leases', id, false)
    if wrong then note(tenant, id, wrong) end
  else
    call('HSET', key, 'state', 'failed', 'error', row[2], 'finished_at', text(now))
    call('HDEL', key, 'lease_until', 'claim')
    place(base .. 'leases', id, false)
    if found[4] then hold(found[4], id, false) end
    if found[5] then freed = 1 end
    place(base .. 'over', id, now)
    if fits(ended_key(tenant, 'failed'), 'zset') then place(ended_key(tenant, 'failed'), id, now) end
    if found[3] then
      place(base .. 'active:' .. path(tenant, found[3]), id, false)
    end
    count(tenant, 'running', -1)
    count(tenant, 'failed', 1)
    note(tenant, id, row[2])
  end
end
flush()
return { now, freed }
