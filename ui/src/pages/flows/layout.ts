// Where the steps of a flow are drawn. Pure.
//
// Each step is in the layer after the last step that it waits for. An edge that passes over layers has a point in
// each of them, so that it runs between boxes and not across them; edges of one step share these points. The order
// within a layer follows the mean of the neighbours.

export interface GraphStep {
  name: string;
  after: string[];
}

export interface Box {
  name: string;
  /** Along the flow: which layer. */
  layer: number;
  /** Across the flow: the middle, in widths of a box. */
  middle: number;
}

export interface Edge {
  from: string;
  to: string;
  /** From box to box, with the points in between: layer and middle. */
  points: [layer: number, middle: number][];
}

export interface Layout {
  boxes: Box[];
  edges: Edge[];
  layers: number;
  /** Across the flow, in widths of a box. */
  breadth: number;
}

/** Of more steps than this, a table says more. */
export const MOST_DRAWN = 300;
/** More boxes and points of edges than this are a thicket. */
const MOST_NODES = 2_500;
const SWEEPS = 6;
/** The room that an edge needs between boxes. */
const EDGE = 0.25;

interface Node {
  layer: number;
  /** Across the flow, in widths of a box. */
  size: number;
  before: Node[];
  next: Node[];
  middle: number;
}

/** Return where to draw the steps, each of which comes after those that it waits for; null if there are too many. */
export function layoutOf(steps: GraphStep[]): Layout | null {
  if (steps.length > MOST_DRAWN) return null;
  const nodes = new Map<string, Node>();
  const chains = new Map<string, Node[]>();
  let count = 0;
  const layers: Node[][] = [];
  const add = (layer: number, size: number): Node => {
    const node: Node = { layer, size, before: [], next: [], middle: 0 };
    (layers[layer] ??= []).push(node);
    count += 1;
    return node;
  };
  for (const { name, after } of steps) {
    const before = after.map((each) => nodes.get(each)?.layer ?? -1);
    nodes.set(name, add(Math.max(-1, ...before) + 1, 1));
  }
  const edges: { from: string; to: string; path: Node[] }[] = [];
  for (const { name, after } of steps) {
    const target = nodes.get(name) as Node;
    for (const from of after) {
      const source = nodes.get(from);
      if (source === undefined) continue;
      const chain = chains.get(from) ?? [source];
      chains.set(from, chain);
      while ((chain.at(-1) as Node).layer < target.layer - 1) {
        const last = chain.at(-1) as Node;
        const point = add(last.layer + 1, EDGE);
        link(last, point);
        chain.push(point);
        if (count > MOST_NODES) return null;
      }
      const path = chain.slice(0, target.layer - source.layer);
      link(path.at(-1) as Node, target);
      edges.push({ from, to: name, path: [...path, target] });
    }
  }
  const ordered = order(layers);
  place(ordered);
  const all = ordered.flat();
  const least = Math.min(0, ...all.map(({ middle, size }) => middle - size / 2));
  const most = Math.max(0, ...all.map(({ middle, size }) => middle + size / 2));
  return {
    boxes: steps.map(({ name }) => {
      const { layer, middle } = nodes.get(name) as Node;
      return { name, layer, middle: middle - least };
    }),
    edges: edges.map(({ from, to, path }) => ({ from, to, points: path.map(({ layer, middle }) => [layer, middle - least]) })),
    layers: layers.length,
    breadth: most - least,
  };
}

function link(from: Node, to: Node): void {
  if (from.next.includes(to)) return;
  from.next.push(to);
  to.before.push(from);
}

/** Order each layer by the mean position of its neighbours: forwards by those before, backwards by those after. */
function order(layers: Node[][]): Node[][] {
  const position = new Map<Node, number>();
  const note = (layer: Node[]): void => layer.forEach((node, index) => position.set(node, index));
  layers.forEach(note);
  let found = layers;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForwards = sweep % 2 === 0;
    const turn = isForwards ? found : [...found].reverse();
    const sorted = turn.map((layer) => {
      const mean = new Map(layer.map((node) => [node, meanOf(isForwards ? node.before : node.next, (each) => position.get(each) ?? 0, position.get(node) ?? 0)]));
      const next = [...layer].sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0));
      note(next);
      return next;
    });
    found = isForwards ? sorted : sorted.reverse();
  }
  return found;
}

/** Move each node towards the mean of its neighbours, without overlaps. */
function place(layers: Node[][]): void {
  for (const layer of layers) spread(layer, layer.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForwards = sweep % 2 === 0;
    for (const layer of isForwards ? layers : [...layers].reverse()) {
      spread(
        layer,
        layer.map((node) => meanOf(isForwards ? node.before : node.next, (each) => each.middle, node.middle)),
      );
    }
  }
}

/** Place the nodes of a layer in their order, near where they want to be. */
function spread(layer: Node[], wanted: number[]): void {
  let end = -Infinity;
  let missed = 0;
  layer.forEach((node, index) => {
    const want = wanted[index] ?? 0;
    node.middle = Math.max(want, end + node.size / 2);
    end = node.middle + node.size / 2;
    missed += want - node.middle;
  });
  const shift = layer.length === 0 ? 0 : missed / layer.length;
  for (const node of layer) node.middle += shift;
}

function meanOf(nodes: Node[], valueOf: (node: Node) => number, fallback: number): number {
  return nodes.length === 0 ? fallback : nodes.reduce((sum, node) => sum + valueOf(node), 0) / nodes.length;
}

/** Return the step that an arrow key leads to; null if there is none in that direction. */
export function stepTowards(layout: Layout, name: string, key: string, isDownwards: boolean): string | null {
  const here = layout.boxes.find((box) => box.name === name);
  if (here === undefined) return null;
  if (key === "Home") return layout.boxes[0]?.name ?? null;
  if (key === "End") return layout.boxes.at(-1)?.name ?? null;
  const keys = isDownwards ? ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] : ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
  const direction = keys.indexOf(key);
  if (direction < 0) return null;
  const sign = direction % 2 === 0 ? -1 : 1;
  const isAlong = direction < 2;
  const ahead = layout.boxes.filter((box) =>
    isAlong ? box.layer === here.layer + sign : box.layer === here.layer && sign * (box.middle - here.middle) > 0,
  );
  const nearest = ahead.sort((a, b) => Math.abs(a.middle - here.middle) - Math.abs(b.middle - here.middle))[0];
  return nearest?.name ?? null;
}
