'use strict';
/* Two steps in one lanes view: the lanes of both under each other, GPU rows painted by what became of them. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const WITHOUT = 'not compared';
  const OTHER = { a: 'b', b: 'a' };

  const time = (ns) => foretrace.words.time(ns / 1000);
  /** With all its digits. */
  const exact = (ns) => `${(ns / 1000).toFixed(3)} µs`;

  /** Where every event of one side went: event → [place, spot, position in the spot]. */
  function spotsOf(places, side) {
    const found = new Map();
    places.forEach((place, at) => {
      const { events } = place[side];
      const each = events.length / place.count;
      events.forEach((event, i) => found.set(event, [at, Math.floor(i / each), i % each]));
    });
    return found;
  }

  /** What tells the groups of one trace apart: "CPU" for "CPU, process 4711" where there is no other process. */
  function shortened(groups) {
    const distinct = [...new Set(groups)];
    const head = (group) => group.split(/[,:]/)[0];
    return (group) => (distinct.filter((one) => head(one) === head(group)).length > 1 ? group : head(group));
  }

  /** A growing list of words with their numbers. */
  function numbering() {
    const words = [];
    const known = new Map();
    const of = (word) => {
      if (!known.has(word)) {
        known.set(word, words.length);
        words.push(word);
      }
      return known.get(word);
    };
    return { words, of };
  }

  /**
   * The compared steps of a pair as one set of rows.
   * @param {{a: number, b: number, places: object[]}} pair of the data block `data-pairs`
   * @param {{label: string, predicted: boolean, timeline: object|null}[]} sides `timeline` as `foretrace.unpack` gives it
   */
  foretrace.SideBySide = class SideBySide {
    constructor(pair, sides) {
      this.pair = pair;
      this.sides = { a: sides[pair.a], b: sides[pair.b] };
      this.spots = { a: spotsOf(pair.places, 'a'), b: spotsOf(pair.places, 'b') };
      this.present = ['a', 'b'].filter((side) => this.sides[side].timeline);
      this._arrangeLanes();
      this._fill();
    }

    /** CPU of both, then GPU of both: what does the same work on the GPU lies close together. */
    _arrangeLanes() {
      this.lanes = [];
      this.laneOf = { a: [], b: [] };
      for (const where of ['cpu', 'gpu']) {
        for (const side of this.present) {
          const { label, predicted, timeline } = this.sides[side];
          const short = shortened(timeline.document.lanes.map((lane) => lane.group));
          timeline.document.lanes.forEach((lane, i) => {
            if (lane.side !== where) return;
            this.laneOf[side][i] = this.lanes.length;
            this.lanes.push({ ...lane, group: `${short(lane.group)} · ${predicted ? 'PREDICTED ' : ''}${label}` });
          });
        }
      }
    }

    _fill() {
      const total = this.present.reduce((sum, side) => sum + this.sides[side].timeline.columns.start.length, 0);
      const columns = {
        lane: new Uint32Array(total),
        depth: new Uint32Array(total),
        start: new Float64Array(total),
        duration: new Float64Array(total),
        name: new Uint32Array(total),
        kind: new Uint8Array(total),
        event: new Float64Array(total),
      };
      const kinds = numbering();
      for (const place of this.pair.places) kinds.of(place.category);
      Object.assign(this, { columns, names: [], labels: [], first: {}, size: {}, rowAt: { a: new Map(), b: new Map() } });
      const [from, to] = [[], []];
      let row = 0;
      for (const side of this.present) {
        const { document: said, columns: own } = this.sides[side].timeline;
        const [base, names] = [row, this.names.length];
        this.first[side] = base;
        this.size[side] = own.start.length;
        this.names.push(...said.names);
        this.labels.push(...said.labels);
        for (let i = 0; i < own.start.length; i++, row++) {
          columns.lane[row] = this.laneOf[side][own.lane[i]];
          columns.depth[row] = own.depth[i];
          columns.start[row] = own.start[i];
          columns.duration[row] = own.duration[i];
          columns.name[row] = names + own.name[i];
          columns.event[row] = own.event[i];
          const onGpu = said.lanes[own.lane[i]].side === 'gpu';
          const spot = onGpu ? this.spots[side].get(own.event[i]) : undefined;
          const fate = spot ? this.pair.places[spot[0]].category : WITHOUT;
          columns.kind[row] = kinds.of(onGpu ? fate : said.kinds[own.kind[i]]);
          if (onGpu) this.rowAt[side].set(own.event[i], row);
        }
        for (let i = 0; i < own.arrow_from.length; i++) {
          from.push(base + own.arrow_from[i]);
          to.push(base + own.arrow_to[i]);
        }
      }
      this.kinds = kinds.words;
      this.arrows = { from: Uint32Array.from(from), to: Uint32Array.from(to) };
    }

    /** The options of `foretrace.Lanes`. The arrows of one side cross the lanes of the other: not all at once. */
    options() {
      const { lanes, names, labels, kinds, arrows } = this;
      // Both files number their events from 0; an address such as #event-153 names one of the baseline.
      const event = this.columns.event.map((one, row) => (this.sideOf(row) === 'a' ? one : -1));
      const columns = { ...this.columns, event };
      return { lanes, columns, names, labels, kinds, arrows, arrowsOf: 'chosen', bands: [], unit: 'ns' };
    }

    sideOf(row) {
      return this.present.find((side) => row >= this.first[side] && row < this.first[side] + this.size[side]);
    }

    /** [place, spot, position] of a row of the GPU; undefined for every other row. */
    spotOf(row) {
      const side = this.sideOf(row);
      if (!side || this.rowAt[side].get(this.columns.event[row]) !== row) return undefined;
      return this.spots[side].get(this.columns.event[row]);
    }

    /** The row of a GPU event of one side; -1 where it is not drawn. */
    rowOf(side, event) {
      const row = this.rowAt[side].get(event);
      return row === undefined ? -1 : row;
    }

    /** All rows of a place, of both sides; of one of its spots where that is named. */
    rowsOfPlace(at, spot) {
      const place = this.pair.places[at];
      return ['a', 'b'].flatMap((side) => {
        const { events } = place[side];
        const each = events.length / place.count;
        const shown = spot === undefined ? events : events.slice(spot * each, (spot + 1) * each);
        return shown.map((event) => this.rowOf(side, event));
      });
    }

    /** The rows of the other side that do a row's work. */
    counterparts(row) {
      const spot = this.spotOf(row);
      if (!spot) return [];
      const other = OTHER[this.sideOf(row)];
      return this.rowsOfPlace(spot[0], spot[1]).filter((one) => one >= 0 && this.sideOf(one) === other);
    }

    /** Rows of CPU operators of this name, numbers behind it aside. */
    rowsNamed(name) {
      const fits = this.names.map((one) => {
        const plain = one.replace(/^## | ##$/g, '');
        return plain === name || (plain.startsWith(name) && /[\s:(/#]/.test(plain[name.length]));
      });
      const found = [];
      this.columns.name.forEach((at, row) => {
        if (fits[at] && this.lanes[this.columns.lane[row]].side === 'cpu') found.push(row);
      });
      return found;
    }

    rowsOfModule(module) {
      return this.pair.places.flatMap((place) =>
        ['a', 'b'].flatMap((side) =>
          place[side].events
            .filter((_, i) => place[side].rows[i % place[side].rows.length].module === module)
            .map((event) => this.rowOf(side, event)),
        ),
      );
    }

    /** What is known of a row, for its details. */
    details(row) {
      const side = this.sideOf(row);
      const { label, predicted, alike } = this.sides[side];
      const { start, duration, name, event } = this.columns;
      const facts = [
        ['trace', predicted ? `${label} (predicted, not measured)` : label],
        ['name', this.names[name[row]] === this.labels[name[row]] ? null : this.names[name[row]]],
      ];
      const spot = this.spotOf(row);
      if (spot) {
        const place = this.pair.places[spot[0]];
        const known = place[side].rows[spot[2]];
        const others = this.counterparts(row).map((one) => `${this.labels[name[one]]}, ${time(duration[one])}`);
        const there = this.sides[OTHER[side]].label;
        facts.push(['what became of it', `${place.category}: ${place.title}`]);
        facts.push([`in ${there}`, others.length ? others.join(' + ') : this._absence(place, side, there)]);
        facts.push(['kind, operator', [known.kind, known.op].filter(Boolean).join(', ')]);
        facts.push(['module', known.module]);
        if (alike > 1 && place.count === 1) facts.push(['median', `${known.us} over ${alike} steps alike`]);
      } else facts.push(['kind', this.kinds[this.columns.kind[row]]]);
      facts.push([predicted ? 'length, predicted' : 'length', exact(duration[row])]);
      facts.push(['start in the step', exact(start[row])], ['event', String(event[row])]);
      return facts;
    }

    _absence(place, side, there) {
      if (place[OTHER[side]].events.length) return `not drawn: ${there} has no lanes here`;
      return 'nothing does its work';
    }
  };
})();
