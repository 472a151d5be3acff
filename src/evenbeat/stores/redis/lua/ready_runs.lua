-- Lists the indexes of queued runs. request: nothing. Returns {queue, index} of each.

local found = {}
local function collect(all, list, index, gap)
  for _, suffix in ipairs(call('SMEMBERS', base .. all)) do
    local family, queue = match(suffix, '^([^:]*):(.*)$')
    for _, member in ipairs(read('ZRANGE', base .. list .. suffix, 0, -1)) do
      found[#found + 1] = { queue, index .. family .. ':' .. (gap and queue .. ':' or '') .. member }
    end
  end
end
collect('queues', 'waiting', 'ready', true)
collect('limited', 'cohorts', 'cohort', false)
return { now, found }
