'use strict';
/* The page of a device's memory: its map, and tables whose rows show their blocks there. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const $ = (id) => document.getElementById(id);
  const many = (count, one) => `${count} ${one}${count === 1 ? '' : 's'}`;

  class MemoryPage {
    constructor(page) {
      this.page = page;
      page.clear = () => this.clear();
      page._pick = (table, row) => this._pick(table, row);
      page._move = () => this._move();
      const table = page.table.bind(page);
      page.table = (id) => {
        const made = table(id);
        const hint = $(`grid-${id}`).querySelector('.hint');
        const words = 'Above a column: words, or >5, <=3, 1..5.';
        if (hint) hint.textContent = $('data-map') ? `A row shows its blocks in the map. ${words}` : words;
        return made;
      };
    }

    async start() {
      if (!$('data-map')) return;
      const data = await foretrace.unpack('data-map');
      this.map = new foretrace.MemoryMap($('memory-map'), data, { onArrange: () => this._tell() });
      this._tools();
      for (const one of document.querySelectorAll('button[data-finding]')) {
        one.addEventListener('click', () => this._finding(data.columns[`finding-${one.dataset.finding}`]));
      }
      document.addEventListener('keydown', (event) => this._key(event));
      this._addressed();
      window.addEventListener('hashchange', () => this._addressed());
    }

    _tools() {
      const { map } = this;
      const box = document.querySelector('.memory-tools');
      const choice = (name, label, words) => {
        const made = Object.assign(document.createElement('label'), { textContent: `${label} ` });
        const list = document.createElement('select');
        for (const [value, text] of Object.entries(words)) list.append(new Option(text, value));
        list.dataset.by = name;
        list.value = map.by[name];
        list.addEventListener('change', () => map.choose({ [name]: list.value }));
        made.append(list);
        return made;
      };
      const button = (text, act, title) => {
        const made = Object.assign(document.createElement('button'), { type: 'button', textContent: text, title });
        made.addEventListener('click', act);
        return made;
      };
      const shown = Object.fromEntries(
        Object.entries(foretrace.MemoryMap.SHOWN).filter(([name]) => map.segments.some(foretrace.MemoryMap.fits[name])),
      );
      this.told = document.createElement('span');
      this.told.setAttribute('role', 'status');
      const hole = button('largest hole', () => this.showLargest(), 'Select the largest hole between live blocks');
      hole.disabled = map.largestHole() < 0;
      box.append(
        choice('shown', 'segments', shown),
        choice('order', 'sorted by', foretrace.MemoryMap.ORDERS),
        choice('colour', 'coloured by', { state: 'state', size: 'size', line: 'line' }),
        hole,
        button('fit those in sight', () => map.fit(), 'Zoom so that the largest segment in sight fills the view'),
        this.told,
      );
      this._tell();
    }

    _tell() {
      if (!this.told) return;
      const { chosen, segments, by } = this.map;
      this.told.textContent = chosen.length === segments.length ? '' : `${chosen.length} of ${many(segments.length, 'segment')}`;
      for (const list of document.querySelectorAll('.memory-tools select')) list.value = by[list.dataset.by];
    }

    showLargest() {
      const block = this.map.largestHole();
      if (block < 0) return;
      this.map.select(block);
      foretrace.say(`the largest hole, ${foretrace.words.mebibytes(this.map.columns.size[block])} at ${this.map.address(block)}`);
    }

    _finding(blocks) {
      this.map.show(Array.from(blocks));
      this._move();
      foretrace.say(`${many(blocks.length, 'block')} highlighted in the map`);
    }

    /** The keys that the shell lists for timelines, in the words of this page. */
    _key(event) {
      const taken = event.target.closest('input, textarea, select, [role="application"], dialog[open]');
      if (event.key !== 'm' || taken || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      this._move();
      this.map.lanes.canvas.focus({ preventScroll: true });
      event.preventDefault();
    }

    /** What a row of a table speaks of, in the map. */
    _pick(table, row) {
      if (!this.map) return;
      const value = (key) => table.columns.find((column) => column.key === key).values[row];
      const { tabulator } = this.page.tables[table.id];
      document.querySelectorAll('.tabulator-row.picked').forEach((one) => one.classList.remove('picked'));
      const element = tabulator.getRows().find((one) => one.getData().id === row);
      if (element) element.getElement().classList.add('picked');
      if (table.picks === 'segment') {
        const at = this.map.segments.findIndex((one) => one.address === value('address'));
        const one = this.map.segments[at];
        this.map.show(this.map.blocks((_, segment) => segment === one));
        this.map.showSegment(at);
        this._say(`segment ${one.address} highlighted in the map, ${many(one.blocks, 'block')}`);
        return;
      }
      const pinning = table.picks === 'pin';
      const blocks = this.map.blocksOf(this.map.said.lines[table.picks][row], { pinning });
      this.map.show(blocks);
      const what = pinning ? 'that hold holes open' : 'of this line, still held at the end,';
      this._say(blocks.length ? `${many(blocks.length, 'block')} ${what} highlighted in the map` : 'Nothing of this line is held any more.');
    }

    _say(words) {
      this.page.tell(words);
      this.page.note.querySelector('.go').hidden = false;
    }

    _move() {
      $('section-map').scrollIntoView({ block: 'start' });
      this.page.note.hidden = true;
    }

    /** An address of the page that names one of memory shows it. */
    _addressed() {
      const named = /^#address-(0x[0-9a-f]{1,16})$/i.exec(location.hash);
      if (!named) return;
      const block = this.map.blockAt(BigInt(named[1]));
      if (block < 0) {
        this.page.tell(`No block of the map holds ${named[1]}.`);
        return;
      }
      this.map.select(block);
      this._move();
    }

    clear() {
      if (this.map) this.map.clear();
      this.page.note.hidden = true;
      document.querySelectorAll('.tabulator-row.picked').forEach((row) => row.classList.remove('picked'));
    }
  }

  document.addEventListener('DOMContentLoaded', () => {
    const memory = (foretrace.memory = new MemoryPage(foretrace.page));
    foretrace.ready = Promise.all([foretrace.ready, memory.start()]);
  });
})();
