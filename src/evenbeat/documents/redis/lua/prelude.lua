-- The beginning of every script.
--
-- KEYS[1] is the index: a sorted set of the keys of documents, by the millisecond at which they are due. KEYS[2] is the note
-- with the progress of the scan: "cursor began free rounds". Both are caches: the documents have the valid times. Their keys come
-- from the index, from the scan or from the caller. In a cluster one hash tag puts all of them on the same node.
-- ARGV[1] is MessagePack: {{sleep_until, times, names of the condition, values of the condition}, further arguments …}.

local call, floor, match, sub, find, format = redis.call, math.floor, string.match, string.sub, string.find, string.format
local index, note = KEYS[1], KEYS[2]
local arguments = cmsgpack.unpack(ARGV[1])
local sleep_until, times, names, wanted = unpack(arguments[1])
-- Raises an error before the first write if the index or the note is a key of another type.
call('ZCARD', index)
call('STRLEN', note)

-- Returns the days from 1970 to a date; nil if the date does not exist.
local lengths = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }
local function days_of(year, month, day)
  local is_leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
  local last = (month == 2 and is_leap) and 29 or lengths[month]
  if year < 1 or not last or day < 1 or day > last then return nil end
  if month <= 2 then year = year - 1 end
  local era = floor(year / 400)
  local of_era = year - era * 400
  local of_year = floor((153 * (month > 2 and month - 3 or month + 9) + 2) / 5) + day - 1
  return era * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100) + of_year - 719468
end

local function date_of(days)
  local shifted = days + 719468
  local era = floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local years = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * years + floor(years / 4) - floor(years / 100))
  local month = floor((5 * of_year + 2) / 153)
  local day = of_year - floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  return years + era * 400 + (month <= 2 and 1 or 0), month, day
end

-- Returns the offset in minutes; nil if it is invalid. A text without an offset is in UTC.
local function offset_of(zone)
  if zone == '' or match(zone, '^ ?[Zz]$') then return 0 end
  local sign, hours, minutes = match(zone, '^ ?([+-])(%d%d):?(%d%d)$')
  if not sign then
    sign, hours = match(zone, '^ ?([+-])(%d%d)$')
    minutes = 0
  end
  hours, minutes = tonumber(hours), tonumber(minutes)
  if not sign or hours > 23 or minutes > 59 then return nil end
  return (hours * 60 + minutes) * (sign == '-' and -1 or 1)
end

-- Reads the digits: a double does not have enough of them.
local function read_number(text)
  local sign, whole, fraction, exponent = match(text, '^%s*([+-]?)(%d*)%.?(%d*)[eE]?([+-]?%d*)%s*$')
  if not sign or whole .. fraction == '' then return nil end
  if find(text, '[eE]') then
    exponent = tonumber(exponent)
    if not exponent or math.abs(exponent) > 20 then return nil end
    local shifted = string.rep('0', 20) .. whole .. fraction .. string.rep('0', 20)
    local point = 20 + #whole + exponent
    whole, fraction = sub(shifted, 1, point), sub(shifted, point + 1)
  elseif exponent ~= '' then
    return nil
  end
  local digits = times == 'seconds' and 3 or 0
  local ms = tonumber(whole .. sub(fraction .. '000', 1, digits)) or 0
  local more = find(fraction, '[1-9]', digits + 1) ~= nil
  if sign == '-' then ms = -ms - (more and 1 or 0) end
  -- A time outside of the years 1 to 9999 is most likely in another unit.
  if ms < -62135596800000 or ms > 253402300799999 then return nil end
  return ms, more
end

local function read_any(text)
  local year, month, day, rest = match(text, '^%s*(%d%d%d%d)%-(%d%d)%-(%d%d)(.-)%s*$')
  local days = year and days_of(tonumber(year), tonumber(month), tonumber(day))
  if not days then return nil end
  if rest == '' then return days * 86400000, false, ' ', '' end
  local between, hour, minute, zone = match(rest, '^([ Tt])(%d%d):(%d%d)(.*)$')
  if not between then return nil end
  local second, fraction = match(zone, '^:(%d%d)'), ''
  if second then
    zone = sub(zone, 4)
    local found = match(zone, '^[.,](%d+)')
    if found then fraction, zone = found, sub(zone, #found + 2) end
  end
  hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second or 0)
  local offset = offset_of(zone)
  if not offset or hour > 23 or minute > 59 or second > 59 then return nil end
  local seconds = days * 86400 + hour * 3600 + (minute - offset) * 60 + second
  local ms = seconds * 1000 + tonumber(sub(fraction .. '000', 1, 3))
  return ms, find(fraction, '[1-9]', 4) ~= nil, between, zone
end

-- Returns the millisecond of a time, rounded down, and whether there is a smaller fraction; nil if the text is not a time.
-- For texts also their style: the character between date and time, and the zone.
local midnights = {}
local function read(text)
  if #text > 100 then return nil end
  if times ~= 'text' then return read_number(text) end
  -- The common case: the date was read before, and there is no offset.
  local date, hour, minute, second, fraction = match(text, '^(%d%d%d%d%-%d%d%-%d%d)T(%d%d):(%d%d):(%d%d)(.-)Z$')
  local midnight = date and midnights[date]
  if midnight then
    hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second)
    local part = fraction == '' and 0 or tonumber(match(fraction, '^%.(%d%d%d)$'))
    if part and hour < 24 and minute < 60 and second < 60 then
      return midnight + hour * 3600000 + minute * 60000 + second * 1000 + part, false, 'T', 'Z'
    end
  end
  local ms, more, between, zone = read_any(text)
  if ms and date then midnights[date] = floor(ms / 86400000) * 86400000 end
  return ms, more, between, zone
end

-- Returns the text of a millisecond in a given style.
local written = {}
local function write(ms, between, zone)
  if times == 'milliseconds' then return format('%.0f', ms) end
  if times == 'seconds' then
    local size = math.abs(ms)
    local whole = floor(size / 1000)
    local rest = size - whole * 1000
    return (ms < 0 and '-' or '') .. format('%.0f', whole) .. (rest > 0 and format('.%03d', rest) or '')
  end
  between, zone = between or 'T', zone or 'Z'
  -- Not `..` alone, which writes only 14 digits of a number.
  local known = between .. zone .. format('%.0f', ms)
  if written[known] then return written[known] end
  local shifted = ms + offset_of(zone) * 60000
  local seconds = floor(shifted / 1000)
  local days = floor(seconds / 86400)
  local rest, part = seconds - days * 86400, shifted - seconds * 1000
  local year, month, day = date_of(days)
  local text = format('%04d-%02d-%02d%s%02d:%02d:%02d', year, month, day, between, floor(rest / 3600),
    floor(rest / 60) % 60, rest % 60) .. (part > 0 and format('.%03d', part) or '') .. zone
  written[known] = text
  return text
end

-- Some documents whose sleep_until is not a time, with its value, for a warning.
local invalid = {}

-- Returns when a document is due, rounded up so that none is early; nil for never, also if it does not meet the condition. Then
-- the results of `read` for its sleep_until, also if it does not meet the condition; nil if there is no such field or hash.
local function read_due(key)
  local values = redis.pcall('HMGET', key, sleep_until, unpack(names))
  if values.err then
    -- A key of the user's may have any type. Any other error is raised as it is.
    if not find(values.err, 'WRONGTYPE', 1, true) then call('HMGET', key, sleep_until) end
    return nil
  end
  local text, meets = values[1], true
  if not text or text == '' then return nil end
  for at = 1, #wanted do
    if values[at + 1] ~= wanted[at] then meets = false end
  end
  local ms, more, between, zone = read(text)
  if not ms then
    if meets and #invalid < 5 then invalid[#invalid + 1] = { key, sub(text, 1, 101) } end
    return nil
  end
  return meets and (more and ms + 1 or ms) or nil, ms, more, between, zone
end

-- In chunks: unpack has a limit.
local function change(key, values, cleared)
  for from = 1, #values, 1000 do call('HSET', key, unpack(values, from, math.min(from + 999, #values))) end
  -- After HSET: a hash without fields is deleted, and its expiry with it.
  for from = 1, #cleared, 1000 do call('HDEL', key, unpack(cleared, from, math.min(from + 999, #cleared))) end
end

-- Writes the entry of a document into the index, or removes it.
local function enter(key, due)
  if due then
    call('ZADD', index, due, key)
  else
    call('ZREM', index, key)
  end
end

-- Returns whether a document still has one of these locks.
local function is_one_of(ends, ms, more)
  if ms and not more then
    for at = 1, #ends do
      if ms == ends[at] then return true end
    end
  end
  return false
end

-- The scan: its cursor, when this round began, when it may continue (both in milliseconds of the server's own clock), and how many
-- rounds are over.
local clock = call('TIME')
local time = tonumber(clock[1]) * 1000 + floor(tonumber(clock[2]) / 1000)
local function read_note()
  local cursor, began, free, rounds = match(call('GET', note) or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not cursor then return { cursor = '0', began = 0, free = 0, rounds = 0 } end
  began, free = tonumber(began), tonumber(free)
  -- The clock was set back.
  if began > time then began = 0 end
  if free > time + 60000 then free = 0 end
  return { cursor = cursor, began = began, free = free, rounds = tonumber(rounds) }
end

-- Returns whether the common round may go on now. The first round is not slowed down: there is no index yet.
local function may_go_on(state, rescan)
  if state.rounds == 0 then return true end
  return state.free <= time and (state.cursor ~= '0' or time - state.began >= rescan)
end
