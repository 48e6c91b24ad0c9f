'use strict';
/* The page of a comparison: lanes side by side, and tables whose rows light up in them. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const CATEGORY = 105; // px of the column that holds the longest category and its colour
  const $ = (id) => document.getElementById(id);
  const numberOf = (table) => Number(table.id.split('-').pop());

  class ComparePage {
    constructor(page) {
      this.page = page;
      const [table, showRows] = [page.table.bind(page), page.showRows.bind(page)];
      page.rowsOf = (data, row) => this.rowsOf(data, row);
      page.showRows = (rows, how) => this.view && showRows(rows, how);
      page.clear = () => this.clear();
      page.table = (id) => {
        const isNew = !page.tables[id];
        const made = table(id);
        if (isNew) made.ready = made.ready.then(() => dress(made.tabulator));
        return made;
      };
    }

    async start() {
      const [{ document: said }, timelines] = await Promise.all([foretrace.unpack('data-pairs'), this._timelines()]);
      this.pairs = said.pairs;
      this.sides = said.sides.map((side, at) => ({ ...side, timeline: timelines.get(at) || null }));
      for (const button of document.querySelectorAll('.pairs button')) {
        button.addEventListener('click', () => this.choose(Number(button.dataset.pair)));
      }
      if ($('lanes') && this.pairs.length) this.choose(this.pairs[0].b);
      this.showAddressed();
      window.addEventListener('hashchange', () => this.showAddressed());
    }

    /** An address that names a place (`#place-1-2`: of the first pair the second) shows it. */
    showAddressed() {
      const [, b, at] = /^#place-(\d+)-(\d+)$/.exec(location.hash) || [];
      const pair = this.pairs.find((one) => one.b === Number(b));
      if (!pair || !pair.places[at - 1] || !$('lanes')) return;
      this.choose(pair.b);
      const rows = this.view.rowsOfPlace(at - 1);
      this.page.showRows(rows.filter((row) => row >= 0), { of: rows.length });
    }

    async _timelines() {
      const blocks = [...document.querySelectorAll('script[id^="data-side-"]')];
      const read = blocks.map(async (one) => [Number(one.id.slice('data-side-'.length)), await foretrace.unpack(one.id)]);
      return new Map(await Promise.all(read));
    }

    /** Show one of the pairs, named by the position of its other trace. */
    choose(b) {
      if (this.view && this.view.pair.b === b) return;
      const pair = this.pairs.find((one) => one.b === b);
      if (!pair || !$('lanes')) return;
      if (this.lanes) this.lanes.destroy();
      this.view = new foretrace.SideBySide(pair, this.sides);
      const { view } = this;
      const names = ['a', 'b'].map((side) => view.sides[side].label);
      this.page.timeline = { columns: view.columns, document: { names: view.names, kinds: view.kinds } };
      this.page.lanes = this.lanes = new foretrace.Lanes($('lanes'), {
        ...view.options(),
        label: `The compared steps of ${names.join(' and ')} under each other`,
        details: (row) => view.details(row),
        onSelect: (row) => this.onSelect(row),
      });
      for (const button of document.querySelectorAll('.pairs button')) {
        button.setAttribute('aria-pressed', String(Number(button.dataset.pair) === b));
      }
    }

    /** A selected kernel shows what does its work on the other side. */
    onSelect(row) {
      const spot = row < 0 ? undefined : this.view.spotOf(row);
      this.markPlace(spot ? spot[0] : -1);
      const rows = spot ? this.view.rowsOfPlace(spot[0], spot[1]).filter((one) => one >= 0) : [];
      this.lanes.highlight(rows);
      this.page.note.hidden = true;
      if (!spot) return;
      const place = this.view.pair.places[spot[0]];
      foretrace.say(`${place.category}: ${place.title}`);
    }

    markPlace(at) {
      for (const one of document.querySelectorAll('.tabulator-row.picked')) one.classList.remove('picked');
      const drawn = this.page.tables[`places-${this.view.pair.b}`];
      const row = at >= 0 && drawn ? drawn.tabulator.getRow(at) : null;
      if (row) row.getElement().classList.add('picked');
    }

    /** The rows of the lanes that a row of a table speaks of. */
    rowsOf(table, row) {
      this.choose(numberOf(table));
      const { view } = this;
      if (!view) return [];
      if (table.picks === 'places') {
        history.replaceState(null, '', `#place-${view.pair.b}-${row + 1}`);
        return view.rowsOfPlace(row);
      }
      const name = table.columns.find((column) => column.form === 'name').values[row];
      return table.picks === 'modules' ? view.rowsOfModule(name) : view.rowsNamed(name);
    }

    clear() {
      if (this.lanes) this.lanes.clear();
      this.page.note.hidden = true;
      document.querySelectorAll('.tabulator-row.picked').forEach((row) => row.classList.remove('picked'));
    }
  }

  /** Let a table's categories carry the colours of the lanes, and its changes say which way they go. */
  async function dress(tabulator) {
    const fields = new Set(tabulator.getColumns().map((column) => column.getField()));
    const text = (cell, className) => {
      const element = document.createElement('span');
      element.textContent = cell;
      if (className) element.className = className;
      return element;
    };
    if (fields.has('category')) {
      await tabulator.updateColumnDefinition('category', {
        minWidth: CATEGORY,
        formatter: (cell) => text(cell.getValue(), `fate-chip ${cell.getValue()}`),
      });
    }
    if (!fields.has('change')) return;
    await tabulator.updateColumnDefinition('change', {
      formatter: (cell) => {
        const value = cell.getValue();
        const [column, at] = [foretrace.page.tableData.find((one) => one.id === idOf(tabulator)), cell.getData().id];
        const { notes } = column.columns.find((one) => one.key === 'change');
        if (value === null) return text(notes[at] || foretrace.words.signed(value), 'change same');
        return text(foretrace.words.signed(value), `change ${value < 0 ? 'less' : 'more'}`);
      },
    });
  }

  const idOf = (tabulator) => tabulator.element.closest('.grid').dataset.table;

  document.addEventListener('DOMContentLoaded', () => {
    if (!$('data-pairs')) return;
    const compared = (foretrace.compared = new ComparePage(foretrace.page));
    foretrace.ready = Promise.all([foretrace.ready, compared.start()]);
  });
})();
