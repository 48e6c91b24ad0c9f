'use strict';
/* Brings a page to life: what its sections ask for is drawn from its data blocks. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const AROUND = 0.15; // of a stretch of time, left free at either end
  const $ = (id) => document.getElementById(id);
  const unpack = (id) => ($(id) ? foretrace.unpack(id) : Promise.resolve(null));

  /** What sections, tests and the console share. */
  class Page {
    constructor() {
      this.tables = {};
      this.note = this._note();
    }

    /** The line that says what is highlighted while the timeline is out of sight. */
    _note() {
      const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });
      const note = make('div', '');
      note.className = 'picked-note';
      note.hidden = true;
      this.noteText = make('span', '');
      const [show, clear] = [make('button', 'show'), make('button', 'clear')];
      show.className = 'go';
      clear.className = 'clear';
      show.addEventListener('click', () => this._move());
      clear.addEventListener('click', () => this.clear());
      note.append(this.noteText, show, clear);
      document.body.append(note);
      return note;
    }

    _move() {
      $('section-timeline').scrollIntoView({ block: 'start' });
      this.note.hidden = true;
    }

    /** Say something where a reader sees it, whatever is in sight. */
    tell(words) {
      foretrace.say(words);
      this.noteText.textContent = words;
      this.note.querySelector('.go').hidden = true;
      this.note.hidden = false;
    }

    /**
     * Highlight events in the timeline.
     * @param {number[]} events
     * @param {{select?: number, address?: string, move?: boolean, words?: string}} how `select`: the event to zoom to;
     *   `move`: whether to scroll to the timeline
     */
    show(events, { select, address, move = true, words } = {}) {
      if (!this.lanes) return;
      this.showRows(events.map((event) => this.lanes.rowOfEvent(event)).filter((row) => row >= 0), {
        row: select === undefined ? undefined : this.lanes.rowOfEvent(select),
        of: events.length,
        move,
        words,
      });
      if (address) history.pushState(null, '', address);
    }

    /** As `show`, for rows of the timeline. */
    showRows(rows, { row, of = rows.length, move = true, words } = {}) {
      const { lanes } = this;
      lanes.setRange(null);
      if (row !== undefined && row >= 0) lanes.select(row, { zoom: true });
      else {
        lanes.select(-1);
        if (rows.length) this._zoomToRows(rows);
      }
      lanes.highlight(rows);
      const absent = of - rows.length;
      const many = `${rows.length} ${rows.length === 1 ? 'event' : 'events'} highlighted in the timeline`;
      const said = (words || many) + (absent > 0 ? `; ${absent} more not drawn in it` : '');
      foretrace.say(said);
      this.noteText.textContent = said;
      this.note.querySelector('.go').hidden = false;
      this.note.hidden = move || !rows.length;
      if (move) this._move();
      if (!rows.length && of) this.tell(of === 1 ? 'The event is not drawn in the timeline.' : said);
    }

    _zoomToRows(rows) {
      const { start, duration } = this.timeline.columns;
      let [from, to] = [Infinity, -Infinity];
      for (const row of rows) {
        from = Math.min(from, start[row]);
        to = Math.max(to, start[row] + duration[row]);
      }
      const room = (to - from) * AROUND + 1;
      this.lanes.zoomTo(from - room, to + room);
    }

    /** Zoom the timeline to a stretch of time, ns since the trace's origin. */
    showTime(start, end) {
      if (!this.lanes) return;
      const { origin = 0 } = this.timeline.document;
      const room = (end - start) * AROUND;
      this.lanes.select(-1);
      this.lanes.zoomTo(start - origin - room, end - origin + room);
      this._move();
    }

    clear() {
      this.lanes?.clear();
      this.note.hidden = true;
      document.querySelectorAll('.tabulator-row.picked').forEach((row) => row.classList.remove('picked'));
    }

    /** What is known of a row of the timeline, for its details. */
    details(row) {
      const at = this.kernelOf.get(this.timeline.columns.event[row]);
      const { start, duration, event, name } = this.timeline.columns;
      const facts = [
        ['duration', foretrace.words.time(duration[row] / 1000)],
        ['start', foretrace.words.time((start[row] + this.timeline.document.origin) / 1000)],
        ['event', String(event[row])],
      ];
      if (at === undefined) return facts;
      const { document: said, columns: c } = this.kernels;
      const { words } = foretrace;
      const word = (key) => said[key][c[key][at]];
      const known = (key) => !Number.isNaN(c[key][at]);
      const add = (name, value) => value !== undefined && value !== '' && facts.push([name, value]);
      add('operator', word('op'));
      add('module', word('module'));
      add('step', [word('step'), word('phase')].filter(Boolean).join(', '));
      add('grid × block', word('grid') && `${word('grid')}, ${word('block')}`);
      if (known('registers')) add('registers a thread', words.count(c.registers[at]));
      if (known('shared')) add('shared memory', words.bytes(c.shared[at]));
      if (known('flops')) add('work', words.flop(c.flops[at]));
      if (known('bytes')) add('bytes', words.bytes(c.bytes[at]));
      if (known('tflops')) add('rate', `${words.number(c.tflops[at])} TFLOP/s`);
      if (known('gbps')) add('memory rate', `${words.number(c.gbps[at])} GB/s${c.assisted[at] ? ', cache-assisted' : ''}`);
      if (known('of_peak')) add('of peak', `${words.percent(c.of_peak[at])} % of ${word('peak')}`);
      add('bound', word('bound'));
      add('full name', this.timeline.document.names[name[row]]);
      return facts;
    }

    /** The rows of the timeline that a table's row counts. */
    rowsOf(table, row) {
      const { kernels, transfers, lanes } = this;
      const among = (columns, key, wanted) => {
        const found = [];
        columns[key].forEach((value, at) => value === wanted && found.push(lanes.rowOfEvent(columns.event[at])));
        return found;
      };
      if (table.picks === 'transfer') return among(transfers.columns, 'transfer', row);
      if (table.picks === 'operator') return this._operatorRows(table.columns[0].values[row]);
      return among(kernels.columns, table.picks, row);
    }

    /**
     * Operators by name; a Python frame, a call or an annotation of that name is not the operator. Annotations that torch
     * writes for a compiled graph are counted as operators where no operator has the name.
     */
    _operatorRows(name) {
      const { document: said, columns } = this.timeline;
      const [operator, annotation] = ['operator', 'annotation'].map((kind) => said.kinds.indexOf(kind));
      const named = said.names.map((each) => each === name);
      const found = { [operator]: [], [annotation]: [] };
      columns.name.forEach((each, row) => named[each] && found[columns.kind[row]]?.push(row));
      return operator >= 0 && found[operator].length ? found[operator] : found[annotation];
    }

    _pick(table, row) {
      if (!this.lanes) return;
      const drawn = this.rowsOf(table, row);
      const rows = drawn.filter((one) => one >= 0);
      const calls = table.columns.find((column) => column.key === 'calls');
      this.showRows(rows, { of: table.picks === 'operator' ? calls.values[row] : drawn.length, move: false });
      const { tabulator } = this.tables[table.id];
      $(`grid-${table.id}`).querySelectorAll('.picked').forEach((one) => one.classList.remove('picked'));
      const element = tabulator.getRows().find((one) => one.getData().id === row);
      if (element) element.getElement().classList.add('picked');
    }

    /** Draw a table where it is not drawn yet. */
    table(id) {
      if (this.tables[id]) return this.tables[id];
      const place = $(`grid-${id}`);
      const data = this.tableData.find((one) => one.id === id);
      place.hidden = false;
      this.tables[id] = foretrace.table(place, data, (row) => this._pick(data, row));
      place.parentElement.querySelector('.in-page').classList.add('drawn');
      return this.tables[id];
    }
  }

  async function startTimeline(page) {
    page.timeline = await unpack('data-timeline');
    if (page.timeline) drawTimeline(page);
    if ($('section-timeline')) foretrace.linkEvidence(page);
  }

  function drawTimeline(page) {
    page.lanes = new foretrace.Lanes($('timeline'), {
      ...foretrace.timelineOptions(page.timeline),
      label: 'Timeline of CPU threads and GPU streams',
      details: (row) => page.details(row),
      onSelect: (row) => {
        if (row < 0) page.note.hidden = true;
      },
    });
  }

  async function startTables(page) {
    const data = await unpack('data-tables');
    page.tableData = data ? data.document : [];
    // Now, not as they come into sight: a page that moves under the pointer makes readers click wrong rows.
    for (const { id } of page.tableData) {
      if ($(`grid-${id}`)) await page.table(id).ready;
    }
  }

  async function startRoofline(page) {
    const place = $('roofline');
    const roofs = await unpack('data-roofs');
    if (!place || !roofs) return;
    page.roofline = new foretrace.Roofline(place, {
      kernels: page.kernels,
      roofs: roofs.document,
      onPick: (at) => {
        const event = page.kernels.columns.event[at];
        page.show([event], { select: event, address: `#event-${event}` });
      },
    });
  }

  async function startChain(page) {
    const tree = document.querySelector('.chain');
    const data = await unpack('data-chain');
    if (!tree || !data) return;
    const folding = foretrace.foldingTree(tree, (at) => {
      const events = data.document[at] || [];
      if (events.length) page.show(events, { select: events[0], address: `#event-${events[0]}` });
    });
    for (const button of document.querySelectorAll('.chain-tools button')) {
      button.addEventListener('click', () => folding.unfold(Number(button.dataset.levels)));
    }
  }

  /** An address that names an event shows it. */
  function showAddressed(page) {
    const event = /^#event-(\d+)$/.exec(location.hash);
    if (event && page.lanes && page.lanes.rowOfEvent(Number(event[1])) < 0) {
      page.tell(`No event ${event[1]} is drawn in the timeline.`);
    } else if (event && page.lanes) page.show([Number(event[1])], { select: Number(event[1]) });
    const finding = /^#finding-\d+$/.test(location.hash) && $(location.hash.slice(1));
    if (finding && page.lanes) page.show(foretrace.eventsAround(finding), { move: false });
  }

  async function start() {
    foretrace.startShell();
    const page = (foretrace.page = new Page());
    [page.kernels, page.transfers] = await Promise.all([unpack('data-kernels'), unpack('data-transfers')]);
    page.kernelOf = new Map();
    if (page.kernels) page.kernels.columns.event.forEach((event, at) => page.kernelOf.set(event, at));
    await startTimeline(page);
    await Promise.all([startRoofline(page), startChain(page)]);
    await startTables(page);
    foretrace.openAddressed();
    showAddressed(page);
    window.addEventListener('hashchange', () => {
      foretrace.openAddressed();
      showAddressed(page);
    });
  }
  foretrace.ready = start();
})();
