-- Reads the first runs of cohorts, without a bound of time: the first one that stays tells when its cohort is due again.
-- request: {rows of {family, cohort}, the time by which they are due, how many of each}. Returns {id, run_at, …} for each.

local rows = {}
begin()
for at, row in ipairs(request[1]) do
  local some = read('ZRANGE', line_of(row[1], nil, row[2]), 0, request[3] - 1, 'WITHSCORES')
  -- The list of cohorts says that the first one is due.
  if (tonumber(some[2]) or request[2] + 1) > request[2] then recheck(row[1], ':', row[2]) end
  rows[at] = some
end
flush()
return { now, rows }
