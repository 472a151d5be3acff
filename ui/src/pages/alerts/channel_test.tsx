// A test message: sent at once, and followed until it is sent or given up.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { AlertChannel, Delivery } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { Facts } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { deliveryState, ownedBy } from "./texts";

const POLL = 1_000;

export function TestDialog({ channel, onClose }: { channel: AlertChannel; onClose: () => void }) {
  const [id, setId] = useState<string | null>(null);
  const send = useAction(async () => {
    const delivery = await call("POST /alerts/channels/{name}/test", { path: { name: channel.name }, query: ownedBy(channel.tenant) });
    setId(delivery.id);
  });
  useEffect(() => void send.run(), []);
  return (
    <Dialog title={`Test of ${channel.name}`} onClose={onClose}>
      {send.error && <ProblemBox problem={send.error} />}
      {id !== null && <Followed id={id} channel={channel} />}
      <footer>
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </footer>
    </Dialog>
  );
}

function Followed({ id, channel }: { id: string; channel: AlertChannel }) {
  const [isOver, setOver] = useState(false);
  const data = useData(`test ${id}`, (signal) => call("GET /alerts/deliveries/{id}", { path: { id }, query: ownedBy(channel.tenant), signal }), {
    every: isOver ? undefined : POLL,
  });
  const state = data.value?.state;
  useEffect(() => setOver(state === "sent" || state === "failed"), [state]);
  return (
    <Loaded data={data}>
      {(delivery) => (
        <div class="stack" role="status">
          <p>{sentence(delivery, channel)}</p>
          <Facts
            items={[
              ["State", <State state={delivery.state} {...deliveryState(delivery)} />],
              ["Attempts", delivery.tries],
              ["Last attempt", <Time at={delivery.last_try_at} />],
              ...(delivery.state === "pending" ? ([["Next attempt", <Time at={delivery.next_try_at} />]] as [string, preact.JSX.Element][]) : []),
            ]}
          />
          {delivery.error !== null && <p class="mono error-line">{delivery.error}</p>}
        </div>
      )}
    </Loaded>
  );
}

function sentence({ state, tries }: Delivery, { address }: AlertChannel): string {
  if (state === "sent") return `${address} has taken the message.`;
  if (state === "failed") return `${address} refused the message; it is not sent again.`;
  return tries === 0 ? "The message waits for its turn: it takes a few seconds." : `${address} did not take the message yet; it is sent again.`;
}
