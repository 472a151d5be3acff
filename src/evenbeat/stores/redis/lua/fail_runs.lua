-- Sets unreadable claimed runs to failed, each with a note: at the head of its queue, such a run would block the
-- others. A run that is not running any more is only removed from the index of leases.
-- request: {rows of {id, note}}.

begin()
need_for_runs()
for _, row in ipairs(request) do
  local id, key = row[1], base .. 'runs:' .. row[1]
  wrong = nil
  local found = read('HMGET', key, 'state', 'tenant', 'schedule', 'worker')
  local tenant = found[2] or 'default'
  if found[1] ~= 'running' then
    place(base .. 'leases', id, false)
    if wrong then note(tenant, id, wrong) end
  else
    call('HSET', key, 'state', 'failed', 'error', row[2], 'finished_at', text(now))
    call('HDEL', key, 'lease_until', 'claim')
    place(base .. 'leases', id, false)
    if found[4] then hold(found[4], id, false) end
    place(base .. 'over', id, now)
    if found[3] then
      place(base .. 'active:' .. path(tenant, found[3]), id, false)
    end
    count(tenant, 'running', -1)
    count(tenant, 'failed', 1)
    note(tenant, id, row[2])
  end
end
flush()
return { now }
