-- Claimed runs that can't be read: over and done with, each with a note. Waiting at the head of its queue, such
-- a run would starve the others. What is not a running run any more only leaves the index of leases.
-- asked: {rows of {id, note}}.

begin()
need_for_runs()
for _, row in ipairs(asked) do
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
