'use strict';
/* What stands around the canvas: search, buttons, the line about a range, details, help and the tip at the pointer. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const WIDE = 70; // letters of a detail that takes a line of its own
  const MOST_TIES = 12; // of a row that are listed

  const HELP = [
    ['click, drag, double click', 'select a row, move, zoom to a row'],
    ['wheel', 'zoom at the pointer, once the timeline has been clicked; with Ctrl always'],
    ['shift + wheel', 'move sideways'],
    ['shift + drag', 'measure a range'],
    ['W S  or  + −', 'zoom in, out'],
    ['A D  or  ← →', 'move left, right'],
    ['↑ ↓', 'select in the row above, below'],
    ['[ ]', 'select the previous, next row'],
    ['F', 'zoom to the selected row'],
    ['0', 'show everything'],
    ['/', 'search'],
    ['Esc', 'clear selection, search and range'],
    ['?', 'this list'],
  ];

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function button(className, text, label, act) {
    const made = make('button', className, text);
    made.type = 'button';
    made.title = label;
    made.setAttribute('aria-label', label);
    made.addEventListener('click', act);
    return made;
  }

  foretrace.LanesPanel = class LanesPanel {
    constructor(host) {
      this.host = host;
      this.found = new Uint32Array(0);
      this.kind = null;
      this.at = -1;
      this.bar = make('div', 'lanes-bar');
      this._makeSearch();
      this._makeButtons();
      this.status = make('div', 'lanes-status');
      this.details = make('div', 'lanes-details');
      this.live = make('div', 'lanes-live');
      this.live.setAttribute('aria-live', 'polite');
      host.tip = this.tipBox = make('div', 'lanes-tip');
      this.tipBox.hidden = true;
      this.help = this._makeHelp();
      this.showDetails(-1);
    }

    _makeSearch() {
      const { host } = this;
      const box = make('div', 'lanes-search');
      box.setAttribute('role', 'search');
      this.input = make('input');
      this.input.type = 'search';
      this.input.placeholder = 'Search names  /';
      this.input.setAttribute('aria-label', 'Search names');
      this.input.spellcheck = false;
      this.input.autocomplete = 'off';
      this.count = make('span', 'lanes-count');
      this.count.setAttribute('aria-live', 'polite');
      let later = 0;
      this.input.addEventListener('input', () => {
        clearTimeout(later);
        later = setTimeout(() => this.find(this.input.value), 120);
      });
      this.input.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') {
          event.preventDefault();
          clearTimeout(later);
          if (this.sought !== this.input.value) this.find(this.input.value);
          this.next(event.shiftKey ? -1 : 1);
        } else if (event.key === 'Escape') {
          this.input.value = '';
          this.find('');
          host.canvas.focus({ preventScroll: true });
        }
      });
      box.append(
        this.input,
        this.count,
        button('lanes-button', '‹', 'Previous match', () => this.next(-1)),
        button('lanes-button', '›', 'Next match', () => this.next(1)),
      );
      this.bar.append(box);
    }

    _makeButtons() {
      const { host } = this;
      const box = make('div', 'lanes-buttons');
      box.append(
        button('lanes-button', '−', 'Zoom out (S)', () => host.zoomBy(1.6, host.middle())),
        button('lanes-button', '+', 'Zoom in (W)', () => host.zoomBy(1 / 1.6, host.middle())),
        button('lanes-button', 'All', 'Show everything (0)', () => host.reset()),
        button('lanes-button', '?', 'Keys', () => this.toggleHelp()),
      );
      this.bar.append(box);
    }

    _makeHelp() {
      const box = make('div', 'lanes-help');
      box.hidden = true;
      box.setAttribute('role', 'note');
      const list = make('dl');
      for (const [keys, what] of HELP) list.append(make('dt', '', keys), make('dd', '', what));
      box.append(list, button('lanes-button', 'Close', 'Close', () => this.toggleHelp()));
      return box;
    }

    toggleHelp() {
      this.help.hidden = !this.help.hidden;
    }

    focusSearch() {
      this.input.focus();
      this.input.select();
    }

    /** Search and mark what is found; an empty text clears it. */
    find(text) {
      this.sought = text;
      this.found = this.host.model.search(text);
      this.at = -1;
      this.host.mark('found', this.found);
      this._tellCount();
    }

    next(way) {
      const { found, host } = this;
      if (!found.length) return;
      if (this.at < 0) {
        const from = host.selected >= 0 ? host.model.start[host.selected] : host.target.start;
        const after = foretrace.firstWhere(0, found.length, (i) => host.model.start[found[i]] >= from);
        this.at = way > 0 ? after % found.length : (after - 1 + found.length) % found.length;
      } else this.at = (this.at + way + found.length) % found.length;
      host.select(found[this.at], { reveal: true });
      this._tellCount();
    }

    _tellCount() {
      const { found, at } = this;
      const total = found.length.toLocaleString('en-GB');
      this.count.textContent = !this.sought || !this.sought.trim() ? '' : at < 0 ? total : `${at + 1} of ${total}`;
      this.bar.classList.toggle('lanes-nothing', Boolean(this.sought && this.sought.trim() && !found.length));
    }

    /** The line below the lanes: the colours in use, or what a range holds. */
    showKinds() {
      const { host } = this;
      const chips = host.model.kinds.map((kind, i) => {
        const chip = button('lanes-chip', '', `Let ${kind} rows stand out`, () => this.switchKind(i));
        chip.append(...this._chip(kind, host.palette.fills[i][0]).childNodes);
        chip.setAttribute('aria-pressed', String(this.kind === i));
        return chip;
      });
      this.status.replaceChildren(...chips);
    }

    /** Let the rows of a kind stand out; again, or null: none. */
    switchKind(kind) {
      const { host } = this;
      this.kind = this.kind === kind ? null : kind;
      const rows = [];
      for (let row = 0; this.kind !== null && row < host.model.size; row++) {
        if (host.model.kind[row] === this.kind) rows.push(row);
      }
      host.mark('kind', Uint32Array.from(rows));
      this.showKinds();
    }

    _chip(words, colour) {
      const chip = make('span', 'lanes-chip');
      const spot = make('i');
      spot.style.background = colour;
      chip.append(spot, make('span', '', words));
      return chip;
    }

    showRange(range) {
      const { host } = this;
      if (!range) {
        this.showKinds();
        return;
      }
      const length = host.axis.length(range.end - range.start);
      const share = (busy) => {
        const part = foretrace.words.percent(busy / (range.end - range.start));
        return `${host.axis.length(busy)} (${part} %)`;
      };
      const { kinds, gpu } = host.model.busyIn(range.start, range.end);
      const said = gpu === null ? `${length} selected` : `${length} selected, GPU busy ${share(gpu)}`;
      const parts = kinds.map(([kind, busy]) =>
        this._chip(`${host.model.kinds[kind]} ${share(busy)}`, host.palette.fills[kind][0]),
      );
      this.status.replaceChildren(make('b', '', said), ...parts);
      this.say(said);
    }

    say(words) {
      this.live.textContent = words;
    }

    tip(row, at) {
      const { host, tipBox } = this;
      tipBox.hidden = row < 0;
      if (row < 0) return;
      const { model } = host;
      if (this.tipped !== row) {
        this.tipped = row;
        const kind = model.kinds[model.kind[row]];
        tipBox.replaceChildren(
          make('b', '', model.labels[model.name[row]].slice(0, 160)),
          make('span', '', `${host.axis.length(model.duration[row])} · ${kind}`),
        );
      }
      const right = at.x + 16 + tipBox.offsetWidth > host.fullWidth;
      const x = right ? Math.max(4, at.x - 12 - tipBox.offsetWidth) : at.x + 16;
      const below = at.y + 18 + tipBox.offsetHeight < host.height;
      const y = below ? at.y + 18 : Math.max(2, at.y - 12 - tipBox.offsetHeight);
      tipBox.style.transform = `translate(${x}px, ${y}px)`;
    }

    showDetails(row) {
      const { host, details } = this;
      details.replaceChildren();
      details.classList.toggle('lanes-empty', row < 0);
      if (row < 0) {
        details.append(make('p', '', 'Select a row to see what it is. Press ? for the keys.'));
        return;
      }
      const { model } = host;
      const title = make('h4');
      const spot = make('i');
      spot.style.background = host.palette.fills[model.kind[row]][0];
      title.append(spot, make('span', '', model.labels[model.name[row]]));
      const close = button('lanes-button lanes-close', '×', 'Clear the selection (Esc)', () => host.clear());
      const list = make('dl');
      const pairs = host.options.details ? host.options.details(row) : this._pairs(row);
      for (const [key, value] of pairs) {
        if (value === null || value === undefined || value === '') continue;
        // What would leave a hole beside it takes the line.
        list.append(make('dt', value.length > WIDE ? 'wide' : '', key), make('dd', '', value));
      }
      details.append(close, title, list);
      this._ties(row);
    }

    _pairs(row) {
      const { model, axis } = this.host;
      const lane = model.lanes[model.lane[row]];
      const label = model.labels[model.name[row]];
      const name = model.names[model.name[row]];
      return [
        ['name', name === label ? null : name],
        ['kind', model.kinds[model.kind[row]]],
        ['start', axis.exact(model.start[row])],
        ['length', axis.exact(model.duration[row])],
        ['lane', [lane.group, lane.title].filter(Boolean).join(', ')],
        ['event', model.event && model.event[row] >= 0 ? String(model.event[row]) : null],
      ];
    }

    _ties(row) {
      const { host } = this;
      const { model } = host;
      const ties = model.ties(row, MOST_TIES + 1);
      if (!ties.length) return;
      const onGpu = model.lanes[model.lane[row]].side === 'gpu';
      const others = ties.map(([from, to]) => (onGpu ? from : to));
      const box = make('div', 'lanes-ties');
      box.append(make('span', '', onGpu ? 'launched by' : 'launched'));
      for (const other of others.slice(0, MOST_TIES)) {
        const words = `${model.labels[model.name[other]]} · ${host.axis.length(model.duration[other])}`;
        box.append(button('lanes-tie', words, 'Select it', () => host.choose(other, { reveal: true })));
      }
      if (others.length > MOST_TIES) box.append(make('span', '', 'and more'));
      this.details.append(box);
    }
  };
  foretrace.lanesElement = make;
})();
