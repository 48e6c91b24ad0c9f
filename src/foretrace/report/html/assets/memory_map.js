'use strict';
/* The map of a device's memory: a lane a segment, a rectangle a block, by what the reader wants to see. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const NOBODY = 2 ** 32 - 1;
  const LINES = 9; // that have a colour of their own
  const MIB = 2 ** 20;
  const CLASSES = [1, 10, 32, 128, 1024]; // MiB up to which a block is of a class of sizes
  const ROOM = 1.02; // of the view, to the longest segment in sight

  const held = (one) => (one.size ? one.active / one.size : 0);
  const ORDERS = {
    holes: (a, b) => b.holes - a.holes || (a.active === 0) - (b.active === 0) || b.size - a.size,
    largest: (a, b) => b.largest - a.largest || b.holes - a.holes,
    size: (a, b) => b.size - a.size,
    held: (a, b) => held(a) - held(b) || b.size - a.size,
    address: () => 0,
  };
  const SHOWN = {
    all: () => true,
    holes: (one) => one.holes > 0,
    used: (one) => one.active > 0,
    free: (one) => one.active === 0,
    expandable: (one) => one.expandable,
  };

  const size = (bytes) => foretrace.words.mebibytes(bytes);

  foretrace.MemoryMap = class MemoryMap {
    /**
     * @param {HTMLElement} place
     * @param {{document: object, columns: object}} data of the data block, see memory.py
     * @param {{onArrange?: () => void}} options `onArrange`: after segments were chosen or ordered anew
     */
    constructor(place, { document: said, columns }, { onArrange } = {}) {
      Object.assign(this, { place, said, columns, onArrange });
      this.segments = said.segments.map((one, at) => ({ ...one, at }));
      this.starts = this.segments.map((one) => BigInt(one.address));
      this.count = columns.size.length;
      this.segmentOf = new Uint32Array(this.count);
      for (const one of this.segments) this.segmentOf.fill(one.at, one.first, one.first + one.blocks);
      this.by = { order: 'holes', shown: 'all', colour: 'state' };
      this.marked = [];
      this._name();
      this._group();
      this._arrange();
    }

    /** Names of rows: who allocated, or what is free. */
    _name() {
      const { origins, states } = this.said;
      const numbers = new Map();
      const number = (name) => numbers.get(name) ?? (numbers.set(name, numbers.size), numbers.size - 1);
      const ofOrigin = origins.map((one) => number(one.where || 'origin not known'));
      const ofState = states.map((state) => number(state));
      this.nameOf = new Uint32Array(this.count);
      for (let i = 0; i < this.count; i++) {
        const origin = this.columns.origin[i];
        this.nameOf[i] = origin === NOBODY ? ofState[this.columns.state[i]] : ofOrigin[origin];
      }
      this.names = [...numbers.keys()];
    }

    /** What the allocator never lends out of: a stream of a pool, small or large; the one with most memory first. */
    _group() {
      const groups = new Map();
      for (const one of this.segments) {
        const key = `${one.owner}, ${one.kind}`;
        if (!groups.has(key)) groups.set(key, { key, segments: [], size: 0, holes: 0 });
        const group = groups.get(key);
        group.segments.push(one);
        group.size += one.size;
        group.holes += one.holes;
      }
      this.groups = [...groups.values()].sort((a, b) => b.size - a.size);
      for (const group of this.groups) {
        const many = group.segments.length;
        const holes = group.holes ? `, ${size(group.holes)} in holes` : '';
        group.title = `${group.key} · ${many} ${many === 1 ? 'segment' : 'segments'}, ${size(group.size)}${holes}`;
      }
    }

    /** Lay out the chosen segments in the chosen order. */
    _arrange() {
      const chosen = [];
      const lanes = [];
      const fits = SHOWN[this.by.shown];
      for (const group of this.groups) {
        // Segments come by address, and sorting keeps that among equals.
        for (const one of group.segments.filter(fits).sort(ORDERS[this.by.order])) {
          const words = [size(one.size), `${foretrace.words.percent(held(one))} % held`];
          if (one.expandable) words.push('expandable');
          lanes.push({ title: one.address, subtitle: words.join(' · '), group: group.title, side: 'memory', depth: 1 });
          chosen.push(one);
        }
      }
      this.chosen = chosen;
      this.laneOf = new Int32Array(this.segments.length).fill(-1);
      const total = chosen.reduce((sum, one) => sum + one.blocks, 0);
      this.blockOf = new Uint32Array(total);
      this.rowOf = new Int32Array(this.count).fill(-1);
      const columns = {
        lane: new Uint32Array(total),
        depth: new Uint8Array(total),
        start: new Float64Array(total),
        duration: new Float64Array(total),
        name: new Uint32Array(total),
        kind: new Uint8Array(total),
      };
      let row = 0;
      chosen.forEach((one, lane) => {
        this.laneOf[one.at] = lane;
        for (let block = one.first; block < one.first + one.blocks; block++, row++) {
          this.blockOf[row] = block;
          this.rowOf[block] = row;
          columns.lane[row] = lane;
          columns.start[row] = this.columns.offset[block];
          columns.duration[row] = this.columns.size[block];
          columns.name[row] = this.nameOf[block];
        }
      });
      this._draw(lanes, columns);
      if (this.onArrange) this.onArrange();
    }

    _draw(lanes, columns) {
      const before = this.lanes;
      const selected = before && before.selected >= 0 ? this.selectedBlock : -1;
      const kinds = this._kinds();
      for (let row = 0; row < columns.kind.length; row++) columns.kind[row] = kinds.of[this.blockOf[row]];
      if (before) before.destroy();
      this.lanes = foretrace.memoryLanes(this.place, {
        lanes,
        columns,
        names: this.names,
        kinds: kinds.names,
        unit: 'bytes',
        label: 'Map of the segments, a row each; positions are offsets in the segment',
        colour: (kind) => this.fills.get(kind),
        details: (one) => this.details(one),
        tip: (one) => this._tip(one),
        find: (text) => this.find(text),
        folded: before ? before.folded() : [],
        beforeSelect: (one) => {
          this._keep(one);
          if (one >= 0) this.lanes.unfold([one]);
        },
      });
      this.lanes.canvas.addEventListener('dblclick', (event) => this._twice(event));
      if (selected >= 0 && this.rowOf[selected] >= 0) this.lanes.select(this.rowOf[selected], { reveal: true });
      this._mark();
    }

    /** A double click on the title of a segment makes it as wide as the view. */
    _twice(event) {
      const { layout } = this.lanes;
      const box = this.lanes.canvas.getBoundingClientRect();
      const y = layout.unscreen(event.clientY - box.top);
      if (event.clientX - box.left >= layout.gutter) return;
      const lane = layout.lanes.findIndex((one) => one.shown && y >= one.from && y < one.to);
      if (lane >= 0) this.showSegment(this.chosen[lane].at);
    }

    _keep(row) {
      this.selectedBlock = row >= 0 && row < this.blockOf.length ? this.blockOf[row] : -1;
    }

    /** What colours tell apart: names, and one of them for every block. */
    _kinds() {
      const { state, size: sizes, origin } = this.columns;
      const names = [];
      const numbers = new Map();
      this.fills = new Map();
      const number = (name, fill) => {
        if (!numbers.has(name)) {
          numbers.set(name, names.length);
          names.push(name);
          if (fill) this.fills.set(name, fill);
        }
        return numbers.get(name);
      };
      const free = { hole: 'var(--memory-hole)', 'free segment': 'var(--memory-whole)' };
      const present = new Set(state);
      const own = this.said.states.map((name, i) => (present.has(i) ? { name, fill: free[name] } : null));
      const classes = [...CLASSES.map((most) => `up to ${size(most * MIB)}`), `above ${size(CLASSES[CLASSES.length - 1] * MIB)}`];
      const ranks = this.by.colour === 'line' ? this._ranks() : null;
      const plain = { state: (i) => own[state[i]] };
      plain.size = (i) => {
        const at = CLASSES.findIndex((most) => sizes[i] <= most * MIB);
        const rank = at < 0 ? CLASSES.length : at;
        return { name: classes[rank], fill: `var(--memory-size-${rank + 1})` };
      };
      plain.line = (i) => {
        const name = this.names[this.nameOf[i]];
        const rank = ranks.get(this.nameOf[i]);
        return rank === undefined
          ? { name: 'other lines', fill: 'var(--memory-other)' }
          : { name, fill: `var(--memory-line-${rank + 1})` };
      };
      // In the order in which a reader expects them, not in which they come.
      if (this.by.colour === 'state') own.forEach((one) => one && number(one.name, one.fill));
      if (this.by.colour === 'size') {
        const there = new Set();
        for (let i = 0; i < this.count; i++) if (origin[i] !== NOBODY) there.add(plain.size(i).name);
        classes.forEach((name, i) => there.has(name) && number(name, `var(--memory-size-${i + 1})`));
      }
      if (this.by.colour === 'line') for (const [name, rank] of ranks) number(this.names[name], `var(--memory-line-${rank + 1})`);
      const of = new Uint8Array(this.count);
      for (let i = 0; i < this.count; i++) {
        const one = origin[i] === NOBODY ? own[state[i]] : plain[this.by.colour](i);
        of[i] = number(one.name, one.fill);
      }
      return { names, of };
    }

    /** The lines that hold most, by name. */
    _ranks() {
      const bytes = new Map();
      for (let i = 0; i < this.count; i++) {
        if (this.columns.origin[i] === NOBODY) continue;
        bytes.set(this.nameOf[i], (bytes.get(this.nameOf[i]) || 0) + this.columns.size[i]);
      }
      const most = [...bytes].sort((a, b) => b[1] - a[1]).slice(0, LINES);
      return new Map(most.map(([name], rank) => [name, rank]));
    }

    /** Choose another order, other segments, or other colours: {order, shown, colour}. */
    choose(by) {
      const range = this.lanes.showsAll() ? null : { ...this.lanes.target };
      const text = this.lanes.panel.input.value;
      const recolour = !('order' in by || 'shown' in by);
      const top = this.lanes.scroller.scrollTop;
      Object.assign(this.by, by);
      this._arrange();
      if (range) this.lanes.moveTo(range.start, range.end, true);
      if (recolour) this.lanes.scroller.scrollTop = top;
      if (!text) return;
      this.lanes.panel.input.value = text;
      this.lanes.panel.find(text);
    }

    /** The address of a block. */
    address(block) {
      return `0x${(this.starts[this.segmentOf[block]] + BigInt(this.columns.offset[block])).toString(16)}`;
    }

    /** The block that an address lies in, or -1. */
    blockAt(address) {
      const after = foretrace.firstWhere(0, this.starts.length, (i) => this.starts[i] > address);
      if (!after) return -1;
      const one = this.segments[after - 1];
      const offset = Number(address - this.starts[after - 1]);
      if (offset >= one.size) return -1;
      const { offset: offsets, size: sizes } = this.columns;
      const next = foretrace.firstWhere(one.first, one.first + one.blocks, (i) => offsets[i] > offset);
      const block = next - 1;
      return block >= one.first && offset < offsets[block] + sizes[block] ? block : -1;
    }

    /** Rows that fit what was typed, from top to bottom. */
    find(text) {
      if (!text.trim()) return new Uint32Array(0);
      const { states, origins } = this.said;
      const { state, size: sizes, origin } = this.columns;
      const asked = foretrace.readMemorySearch(text, states);
      const wanted = new Set(asked.states);
      const holds = (line) => line.toLowerCase().includes(asked.words);
      const lines = asked.words && origins.map((one) => holds(one.where) || one.stack.some(holds));
      const at = asked.addresses.map((one) => this.blockAt(one));
      const rows = [];
      for (let row = 0; row < this.blockOf.length; row++) {
        const block = this.blockOf[row];
        if (at.length && !at.includes(block)) continue;
        if (wanted.size && !wanted.has(states[state[block]])) continue;
        if (!asked.sizes.every((fits) => fits(sizes[block]))) continue;
        if (lines && !(origin[block] !== NOBODY && lines[origin[block]])) continue;
        rows.push(row);
      }
      return Uint32Array.from(rows);
    }

    _tip(row) {
      const block = this.blockOf[row];
      const { state, size: sizes } = this.columns;
      const name = this.names[this.nameOf[block]].slice(0, 160);
      return [name, `${size(sizes[block])} · ${this.said.states[state[block]]}`, this.address(block)];
    }

    /** What is known of a row's block. */
    details(row) {
      const block = this.blockOf[row];
      const c = this.columns;
      const segment = this.segments[this.segmentOf[block]];
      const exact = (bytes) => `${size(bytes)} (${bytes.toLocaleString('en-GB')} B)`;
      const asked = c.requested[block];
      const origin = c.origin[block] === NOBODY ? null : this.said.origins[c.origin[block]];
      const facts = [['address', this.address(block)], ['size', exact(c.size[block])]];
      if (!Number.isNaN(asked) && origin) {
        const more = c.size[block] - asked;
        facts.push(['asked for', more ? `${exact(asked)}, ${size(more)} less` : exact(asked)]);
      } else if (origin) facts.push(['asked for', 'not recorded']);
      facts.push(['state', this.said.states[c.state[block]]]);
      if (origin && !origin.stack.length) facts.push(['stack', 'not recorded']);
      if (origin) origin.stack.forEach((line, i) => facts.push([i ? 'called from' : 'allocated at', line]));
      facts.push(['segment', `${segment.address}, ${size(segment.size)}, ${segment.kind}${segment.expandable ? ', expandable' : ''}`]);
      facts.push(['offset in it', exact(c.offset[block])]);
      facts.push(['whose', segment.owner]);
      if (segment.holes) facts.push(['holes there', `${size(segment.holes)}, the largest ${size(segment.largest)}`]);
      return facts;
    }

    /** Blocks that `fits(block, segment)` holds for. */
    blocks(fits) {
      const found = [];
      for (let i = 0; i < this.count; i++) if (fits(i, this.segments[this.segmentOf[i]])) found.push(i);
      return found;
    }

    /** Live blocks of some origins; `pinning`: only those in segments with holes. */
    blocksOf(origins, { pinning = false } = {}) {
      const wanted = new Set(origins);
      return this.blocks((i, segment) => wanted.has(this.columns.origin[i]) && (!pinning || segment.holes > 0));
    }

    /** Let blocks stand out, and bring the first into sight. */
    show(blocks) {
      this.marked = blocks;
      if (blocks.some((one) => this.rowOf[one] < 0)) this.choose({ shown: 'all' });
      this._mark();
      const rows = blocks.map((one) => this.rowOf[one]);
      this.lanes.unfold(rows);
      if (rows.length) this.lanes.steps.scrollTo(rows.reduce((a, b) => Math.min(a, b)));
    }

    _mark() {
      this.lanes.highlight(this.marked.map((one) => this.rowOf[one]).filter((row) => row >= 0));
    }

    /** Select a block and zoom to it. */
    select(block) {
      if (this.rowOf[block] < 0) this.choose({ shown: 'all' });
      this.lanes.select(this.rowOf[block], { zoom: true });
    }

    /** Show a whole segment, as wide as the view. */
    showSegment(at) {
      if (this.laneOf[at] < 0) this.choose({ shown: 'all' });
      const one = this.segments[at];
      this.lanes.zoomTo(-one.size * (ROOM - 1), one.size * ROOM);
      if (one.blocks) this.lanes.steps.scrollTo(this.rowOf[one.first]);
    }

    /** The largest hole, or -1. */
    largestHole() {
      const hole = this.said.states.indexOf('hole');
      let best = -1;
      for (let i = 0; i < this.count; i++) {
        if (this.columns.state[i] === hole && (best < 0 || this.columns.size[i] > this.columns.size[best])) best = i;
      }
      return best;
    }

    /** Zoom so that the largest segment in sight fills the view. */
    fit() {
      const { layout, scroller, height } = this.lanes;
      const [top, bottom] = [scroller.scrollTop, scroller.scrollTop + height - layout.header];
      let most = 0;
      layout.lanes.forEach((lane, i) => {
        if (lane.shown && lane.to > top + 8 && lane.from < bottom - 8) most = Math.max(most, this.chosen[i].size);
      });
      if (most) this.lanes.zoomTo(-most * (ROOM - 1), most * ROOM);
    }

    clear() {
      this.marked = [];
      this.lanes.clear();
    }
  };

  foretrace.MemoryMap.ORDERS = {
    holes: 'most holes', largest: 'largest hole', size: 'size', held: 'least held', address: 'address',
  };
  foretrace.MemoryMap.SHOWN = {
    all: 'all', holes: 'with holes', used: 'in use', free: 'wholly free', expandable: 'expandable',
  };
  foretrace.MemoryMap.fits = SHOWN;
})();
