-- Runs that are new. asked: runs as add_run takes them. Answers 1 for each that is new, else 0.
-- 17 us of the server's time for each, 24 with its append-only file.

need_for_runs()
if not can_add_all(asked) then error('WRONGTYPE ' .. wrong, 0) end
local answers = {}
for at, run in ipairs(asked) do answers[at] = add_run(run) and 1 or 0 end
flush()
return { now, answers }
