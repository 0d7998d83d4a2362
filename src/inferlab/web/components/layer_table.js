// A table of layers. All rows are here; Quasar's virtual scroll draws those in sight.
const ALL = "all types";
const ROW_HEIGHT = 30;
// The first columns, with the names of layers, stay while the others scroll.
const FROZEN = 2;
const SHARE = "Share %";

export default {
  template: `
    <div class="il-layers" :data-testid="name">
      <div class="il-layers-bar">
        <q-input v-model="words" outlined dense clearable debounce="120" type="search" :label="'Search ' + searched"
          class="il-layers-search" :data-testid="name + '-search'" />
        <q-select v-if="kinds.length > 2" v-model="kind" :options="kinds" outlined dense options-dense label="Layer type"
          class="il-layers-kind" :data-testid="name + '-type'" />
        <span class="il-muted il-small" role="status" :data-testid="name + '-count'">{{ count }}</span>
        <span class="il-layers-tools"><slot /></span>
      </div>
      <q-table v-if="columns.length" ref="table" class="il-table il-layers-table" flat dense hide-bottom virtual-scroll
        :rows="rows" :columns="heads" :row-key="(row) => row.at" v-model:pagination="order" :rows-per-page-options="[0]"
        :virtual-scroll-item-size="${ROW_HEIGHT}" :virtual-scroll-sticky-size-start="${ROW_HEIGHT}"
        :virtual-scroll-slice-size="40" table-class="il-scroll" column-sort-order="da"
        :style="{ '--il-width': width + 'px' }">
        <template v-slot:header-cell="props">
          <q-th :props="props" :style="{ width: props.col.width + 'px', ...props.col.place }" :class="props.col.frozen" tabindex="0"
            :aria-sort="order.sortBy !== props.col.name ? 'none' : order.descending ? 'descending' : 'ascending'"
            @keydown.enter="props.sort(props.col)">{{ props.col.label }}</q-th>
        </template>
        <template v-slot:body="props">
          <tr :data-row="props.row.at">
            <td v-for="head in props.cols" :key="head.name" :class="[head.numeric ? 'il-right' : 'il-name', head.frozen, head.bar]"
              :style="[head.place, head.bar ? { '--share': (100 * (head.field(props.row) ?? 0)) / head.most } : {}]"
              :title="head.numeric ? undefined : texts(head, props.row)" >{{ shown(head, props.row) }}</td>
          </tr>
        </template>
      </q-table>
      <div v-if="columns.length && !rows.length" class="il-layers-none">Nothing is called so.</div>
    </div>`,
  props: { content: String, name: String, noun: String, searched: String, longest: Number },
  data: () => ({ words: "", kind: ALL, order: { sortBy: null, descending: false, rowsPerPage: 0 } }),
  computed: {
    columns() {
      return JSON.parse(this.content);
    },
    heads() {
      let left = 0;
      return this.columns.map((one, index) => {
        const { texts, numbers } = one;
        const frozen = index < FROZEN;
        const place = frozen ? { left: `${left}px` } : {};
        left += one.width;
        return {
          frozen: frozen ? (index === FROZEN - 1 ? "il-frozen il-frozen-last" : "il-frozen") : "",
          place,
          width: one.width,
          bar: one.title === SHARE ? "il-share-bar" : "",
          most: one.title === SHARE ? numbers.reduce((most, value) => Math.max(most, value ?? 0), 0) || 1 : 1,
          name: one.title,
          label: one.title,
          align: numbers ? "right" : "left",
          numeric: Boolean(numbers),
          index,
          sortable: true,
          field: (row) => (numbers ? numbers[row.at] : texts[row.at]),
          sort: numbers ? byNumber : byName,
          // Names begin at A, numbers at the largest, and an index at the first.
          sortOrder: numbers && one.title !== "#" ? "da" : "ad",
        };
      });
    },
    width() {
      return this.columns.reduce((sum, one) => sum + one.width, 0);
    },
    names() {
      const named = this.columns.filter((one) => !one.numbers);
      return (named[0]?.texts ?? []).map((_, at) => named.map((one) => one.texts[at]).join("\n").toLowerCase());
    },
    types() {
      // What has no types is all of one.
      return this.columns.find((one) => one.title === "Type")?.texts ?? this.names.map(() => "");
    },
    kinds() {
      return [ALL, ...[...new Set(this.types)].sort()];
    },
    rows() {
      const words = (this.words ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const kind = this.kinds.includes(this.kind) ? this.kind : ALL;
      const found = [];
      for (let at = 0; at < this.types.length; at++) {
        if (kind !== ALL && this.types[at] !== kind) continue;
        if (words.every((word) => this.names[at].includes(word))) found.push({ at });
      }
      return found;
    },
    count() {
      const all = this.types.length.toLocaleString("en-GB");
      if (!this.columns.length) return "…";
      return this.rows.length === this.types.length ? `${all} ${this.noun}` : `${this.rows.length.toLocaleString("en-GB")} of ${all} ${this.noun}`;
    },
  },
  methods: {
    texts(head, row) {
      return this.columns[head.index].texts[row.at];
    },
    shown(head, row) {
      const text = this.texts(head, row);
      if (head.numeric || text.length <= this.longest) return text;
      // Cut in the middle, as ends tell names apart.
      const tail = Math.floor((this.longest - 1) / 2);
      return `${text.slice(0, this.longest - 1 - tail)}…${text.slice(text.length - tail)}`;
    },
  },
};

// What has no number comes last when the largest comes first.
function byNumber(a, b) {
  return a === b ? 0 : (a ?? -Infinity) < (b ?? -Infinity) ? -1 : 1;
}

function byName(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}
