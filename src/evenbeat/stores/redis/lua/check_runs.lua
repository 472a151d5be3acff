-- Compares the indexes of runs with their hashes. The indexes that a run belongs to are computed as for a new run.
-- request: {ids, index or false, whether to mend}. With an index: entries of it whose run does not belong there. Without:
-- runs that an index lacks, or has with another score. Returns rows of {index, id, what is wrong}.

local index, mend = request[2], request[3]
local wrongs, exists = {}, {}
if mend then
  begin()
  need_for_runs()
end
for _, id in ipairs(request[1]) do
  local found = read('HMGET', base .. 'runs:' .. id, 'state', 'tenant', 'schedule', 'format', 'queue', 'priority', 'task',
    'claim', 'run_at', 'created_at', 'finished_at', 'lease_until', 'worker', 'cohort')
  if found[1] then
    exists[id] = true
    local tenant, created = found[2] or 'default', instant(found[10]) or 0
    local run = {
      id = id, state = found[1], tenant = tenant, path = found[3] and path(tenant, found[3]),
      family = family_of(found[4]), cohort = found[14] or nil,
      ready = (found[5] or '') .. ':' .. (found[6] or '') .. ':' .. tenant .. ':' .. (found[7] or ''),
      claim = found[8], run_at = instant(found[9]) or 0, created = created, finished = instant(found[11]),
      lease = instant(found[12]), worker = found[13],
    }
    place(base .. 'newest', id, -created)
    place(base .. 'newest:tenant:' .. tenant, id, -created)
    if run.path then place(base .. 'newest:schedule:' .. run.path, id, -created) end
    enter(run)
  end
end

local function report(key, id, words)
  wrongs[#wrongs + 1] = { sub(key, #base + 1), id, words }
end

if index then
  -- Only removes: what is missing elsewhere is found by the other kind of request.
  local wanted = sorted[base .. index] or {}
  sorted, held, slots, lines = {}, {}, {}, {}
  local family, line = match(index, '^ready([^:]*):(.*)$')
  if family then recheck(family, line, nil) end
  family, line = match(index, '^cohort([^:]*):(.*)$')
  if family then recheck(family, '', line) end
  for _, id in ipairs(request[1]) do
    if not wanted[id] then
      report(base .. index, id, exists[id] and 'the run does not belong here' or 'there is no such run')
      place(base .. index, id, false)
    end
  end
else
  for key, changes in pairs(sorted) do
    for id, score in pairs(changes) do
      local present = fits(key, 'zset') and call('ZSCORE', key, id)
      if not present then
        report(key, id, 'the run is missing')
      elseif tonumber(present) ~= score then
        report(key, id, 'the run has another time')
      end
    end
  end
  for worker, changes in pairs(held) do
    for id in pairs(changes) do
      local key = base .. 'held:' .. worker
      if not (fits(key, 'hash') and call('HEXISTS', key, id) == 1) then report(key, id, 'the run is missing') end
    end
  end
  for id, cohort in pairs(slots) do
    local key = base .. 'slots'
    if not (fits(key, 'hash') and call('HGET', key, id) == cohort) then report(key, id, 'the run is missing') end
  end
end
if mend and #wrongs > 0 then flush() end
return { now, wrongs }
